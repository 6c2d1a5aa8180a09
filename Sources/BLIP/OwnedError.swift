/// An error that an object owns, with the handle that it lends to the program. The owner's own reference keeps the handle valid.
struct OwnedError {
    let record: ErrorRecord
    let handle: OpaquePointer?

    init(_ record: ErrorRecord) {
        self.record = record
        handle = HandleTable.create(record)
    }

    func end() { HandleTable.release(handle, as: ErrorRecord.self) }
}
