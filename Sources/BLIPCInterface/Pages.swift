import BLIP
import CBLIP

@c @implementation
public func blip_files_options_new() -> OpaquePointer! {
    _ = Runtime.forkGuard
    return HandleTable.create(FileOptions())
}

@c @implementation
public func blip_files_options_release(_ options: OpaquePointer!) {
    HandleTable.release(options, as: FileOptions.self)
}

@c @implementation
public func blip_files_options_set_writable(_ options: OpaquePointer!, _ writable: Bool) -> blip_status {
    HandleTable.with(options) { (options: FileOptions) in
        options.setWritable(writable)
        return BLIP_OK
    }
}

@c @implementation
public func blip_files_options_set_replace(_ options: OpaquePointer!, _ replace: Bool) -> blip_status {
    HandleTable.with(options) { (options: FileOptions) in
        options.setReplace(replace)
        return BLIP_OK
    }
}

@c @implementation
public func blip_files_options_set_hidden(_ options: OpaquePointer!, _ hidden: Bool) -> blip_status {
    HandleTable.with(options) { (options: FileOptions) in
        options.setHidden(hidden)
        return BLIP_OK
    }
}

@c @implementation
public func blip_files_options_set_upload_limit(_ options: OpaquePointer!, _ bytes: UInt64) -> blip_status {
    HandleTable.with(options) { (options: FileOptions) in options.setUploadLimit(bytes) }
}

@c @implementation
public func blip_listener_serve_files(
    _ listener: OpaquePointer!, _ prefix: blip_slice, _ folder: blip_slice, _ options: OpaquePointer!
) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        prefix.string { prefix in
            folder.string { folder in
                guard options != nil else { return listener.serveFiles(prefix: prefix, folder: folder, options: nil) }
                return HandleTable.with(options) { (options: FileOptions) in
                    listener.serveFiles(prefix: prefix, folder: folder, options: options)
                }
            }
        }
    }
}

@c @implementation
public func blip_listener_serve_dashboard(_ listener: OpaquePointer!, _ prefix: blip_slice) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in prefix.string { listener.serveDashboard(prefix: $0) } }
}
