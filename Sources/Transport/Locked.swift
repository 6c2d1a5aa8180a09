import Glibc

/// A value behind a mutex of the system, which, unlike Synchronization's, thread sanitizers know. Not recursive; no
/// callback of the program is ever called under one.
///
/// It lets references out; whoever takes one out must know that the object is safe to share.
public struct Locked<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
    // Sendable: the value is reachable with the mutex locked only.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let value: UnsafeMutablePointer<Value>

    public init(_ value: consuming Value) {
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        pthread_mutex_init(mutex, nil)
        self.value = .allocate(capacity: 1)
        self.value.initialize(to: value)
    }

    deinit {
        value.deinitialize(count: 1)
        value.deallocate()
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    /// Calls `body` with the mutex locked.
    @inline(__always)
    public func withLock<Result, Failure: Error>(_ body: (inout Value) throws(Failure) -> Result) throws(Failure)
        -> Result
    {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return try body(&value.pointee)
    }

    /// For `fork` alone, which must not happen while the value is being changed: locks without a scope.
    public func lock() { pthread_mutex_lock(mutex) }
    /// Ends what `lock` began.
    public func unlock() { pthread_mutex_unlock(mutex) }
}
