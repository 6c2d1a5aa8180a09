import Glibc

/// Signals that are taken by waiting for them instead of by a handler.
struct Signals {
    private var set = sigset_t()

    /// Blocks them for the calling thread and those it makes.
    init(_ signals: Int32...) {
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Returns when one has come.
    func wait() {
        var set = set
        var signal: Int32 = 0
        while sigwait(&set, &signal) != 0 {}
    }

    func unblock() {
        var set = set
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
    }
}
