/* gRPC for C++: unary calls of bytes, by the callback interfaces, on one channel. */

#include "peer.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>

namespace {

constexpr int maximum = 16 << 20;

class Echo : public grpc::ServerGenericBidiReactor {
public:
    Echo() { StartRead(&bytes); }
    void OnReadDone(bool ok) override
    {
        if (ok)
            StartWriteAndFinish(&bytes, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }

private:
    grpc::ByteBuffer bytes;
};

class Service : public grpc::CallbackGenericService {
    grpc::ServerGenericBidiReactor *CreateReactor(grpc::GenericCallbackServerContext *) override { return new Echo; }
};

void serve(const std::string &address)
{
    Service service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(maximum);
    builder.RegisterCallbackGenericService(&service);
    builder.BuildAndStart()->Wait();
}

struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    grpc::ByteBuffer request, response;
    uint64_t sent_at;
};

std::mutex counting;
std::atomic<uint64_t> busy;

void ask(grpc::GenericStub &stub, Call &call)
{
    std::string body(plan.body_size, 0);
    fill(&body[0]);
    grpc::Slice slice(body);
    call.context = std::make_unique<grpc::ClientContext>();
    call.request = grpc::ByteBuffer(&slice, 1);
    call.response.Clear();
    call.sent_at = nanoseconds();
    stub.UnaryCall(call.context.get(), "/Echo/Echo", grpc::StubOptions(), &call.request, &call.response,
        [&stub, &call](grpc::Status status) {
            if (!status.ok())
                die("%s", status.error_message().c_str());
            grpc::Slice whole;
            if (!call.response.DumpToSingleSlice(&whole).ok())
                die("the response cannot be read");
            check(whole.begin(), whole.size());
            bool more;
            {
                std::lock_guard<std::mutex> guard(counting);
                more = answered(call.sent_at);
            }
            if (more)
                ask(stub, call);
            else
                busy--;
        });
}

} // namespace

int main(int argc, char **argv)
{
    bool is_server = begin(argc, argv);
    std::string address = "127.0.0.1:" + std::to_string(plan.port);
    if (is_server)
        serve(address);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(maximum);
    auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10)))
        die("cannot connect");
    grpc::GenericStub stub(channel);
    std::vector<Call> calls(plan.window);
    busy = plan.window;
    start_clock();
    for (auto &call : calls)
        ask(stub, call);
    while (busy != 0)
        usleep(1000);
    report();
    _exit(0);
}
