import Glibc

// Not exit(): it would tear down what the library's threads may still be using; nothing here waits to be flushed.
_exit(Tool.run(Array(CommandLine.arguments.dropFirst())))
