"""Every function that libblip exports, with the exact types of blip.h.

A test compares this table with the header: names, number and kind of arguments, results, constants.
Handles are integers as wide as a pointer (None is NULL). Function pointers are passed as NULL: what would be a
callback arrives as an event of a queue, because no thread of the library may enter Python. Those of transports, and
those that see frames or give more time, have functions, on loops that Python runs.
"""

from __future__ import annotations

import enum
from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    string_at,
)
from typing import Any, Callable, Dict, Tuple

from ._library import LibraryNotFound, load


class Slice(Structure):
    """blip_slice as an argument. `data` takes a bytes object, which it keeps alive, or an address."""

    _fields_ = [("data", c_char_p), ("size", c_size_t)]


class OutSlice(Structure):
    """blip_slice as a result. `data` is an address."""

    _fields_ = [("data", c_void_p), ("size", c_size_t)]


HANDLE = c_void_p
FUNCTION = c_void_p
STATUS = c_int32
SLICE = Slice

PROTOTYPES: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "blip_version_number": (c_uint32, ()),
    "blip_version_string": (c_char_p, ()),
    "blip_status_name": (c_char_p, (STATUS,)),
    "blip_status_message": (c_char_p, (STATUS,)),
    "blip_text": (OutSlice, (c_char_p,)),
    "blip_error_status": (STATUS, (HANDLE,)),
    "blip_error_domain": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_error_code": (STATUS, (HANDLE, POINTER(c_int64))),
    "blip_error_message": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_error_retain": (HANDLE, (HANDLE,)),
    "blip_error_release": (None, (HANDLE,)),
    "blip_trust_retain": (HANDLE, (HANDLE,)),
    "blip_trust_release": (None, (HANDLE,)),
    "blip_trust_certificate": (STATUS, (HANDLE, c_size_t, POINTER(OutSlice))),
    "blip_trust_host": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_trust_verdict": (STATUS, (HANDLE, POINTER(c_int32), POINTER(OutSlice))),
    "blip_trust_accept": (STATUS, (HANDLE,)),
    "blip_trust_reject": (STATUS, (HANDLE,)),
    "blip_runtime_options_new": (HANDLE, ()),
    "blip_runtime_options_release": (None, (HANDLE,)),
    "blip_runtime_options_set_threads": (STATUS, (HANDLE, c_uint32)),
    "blip_runtime_options_set_queue": (STATUS, (HANDLE, HANDLE)),
    "blip_runtime_new": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_runtime_default": (HANDLE, ()),
    "blip_runtime_retain": (HANDLE, (HANDLE,)),
    "blip_runtime_release": (None, (HANDLE,)),
    "blip_runtime_thread_count": (STATUS, (HANDLE, POINTER(c_uint32))),
    "blip_runtime_fd": (STATUS, (HANDLE, POINTER(c_int))),
    "blip_runtime_run_once": (STATUS, (HANDLE, c_int64, POINTER(c_uint32))),
    "blip_runtime_stop": (STATUS, (HANDLE, c_int64)),
    "blip_runtime_set_log": (STATUS, (HANDLE, c_int32, FUNCTION, c_void_p, FUNCTION)),
    "blip_runtime_set_log_queue": (STATUS, (HANDLE, c_int32, HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_runtime_set_cookie": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_runtime_cookies": (STATUS, (HANDLE, SLICE, c_void_p, c_size_t, POINTER(c_size_t))),
    "blip_runtime_clear_cookies": (STATUS, (HANDLE,)),
    "blip_queue_new": (STATUS, (c_uint32, POINTER(HANDLE))),
    "blip_queue_retain": (HANDLE, (HANDLE,)),
    "blip_queue_release": (None, (HANDLE,)),
    "blip_queue_fd": (STATUS, (HANDLE, POINTER(c_int))),
    "blip_queue_dispatch": (STATUS, (HANDLE, c_size_t, c_int64, POINTER(c_size_t))),
    "blip_queue_next": (STATUS, (HANDLE, POINTER(HANDLE), c_size_t, c_int64, POINTER(c_size_t))),
    "blip_queue_wake": (STATUS, (HANDLE,)),
    "blip_queue_count": (STATUS, (HANDLE, POINTER(c_size_t))),
    "blip_event_kind": (STATUS, (HANDLE, POINTER(c_int32))),
    "blip_event_status": (STATUS, (HANDLE,)),
    "blip_event_value": (STATUS, (HANDLE, POINTER(c_int64))),
    "blip_event_context": (STATUS, (HANDLE, POINTER(c_void_p))),
    "blip_event_connection": (HANDLE, (HANDLE,)),
    "blip_event_listener": (HANDLE, (HANDLE,)),
    "blip_event_challenge": (HANDLE, (HANDLE,)),
    "blip_event_message": (HANDLE, (HANDLE,)),
    "blip_event_request": (HANDLE, (HANDLE,)),
    "blip_event_trust": (HANDLE, (HANDLE,)),
    "blip_event_log_line": (STATUS, (HANDLE, POINTER(OutSlice), POINTER(OutSlice))),
    "blip_event_release": (None, (HANDLE,)),
    "blip_connection_options_new": (HANDLE, ()),
    "blip_connection_options_release": (None, (HANDLE,)),
    "blip_connection_options_add_subprotocol": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_queue": (STATUS, (HANDLE, HANDLE)),
    "blip_connection_options_add_header": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_connection_options_set_credentials": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_connection_options_set_preemptive": (STATUS, (HANDLE, c_bool)),
    "blip_connection_options_set_bearer_token": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_redirect_limit": (STATUS, (HANDLE, c_uint32)),
    "blip_connection_options_set_cookies": (STATUS, (HANDLE, c_bool)),
    "blip_connection_options_set_user_agent": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_connect_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_connection_options_set_close_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_connection_options_set_bye_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_connection_options_set_half_close": (STATUS, (HANDLE, c_int64)),
    "blip_connection_options_set_read_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_connection_options_set_write_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_connection_options_set_ping": (STATUS, (HANDLE, c_int64, c_uint32)),
    "blip_connection_options_set_frame_size": (STATUS, (HANDLE, c_uint32)),
    "blip_connection_options_set_compression_level": (STATUS, (HANDLE, c_int32)),
    "blip_connection_options_set_limit": (STATUS, (HANDLE, c_int32, c_uint64)),
    "blip_connection_options_set_tls_ca_file": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_tls_verify": (STATUS, (HANDLE, c_bool)),
    "blip_connection_options_set_tls_identity": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_connection_options_set_tls_server_name": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_tls_versions": (STATUS, (HANDLE, c_int32, c_int32)),
    "blip_connection_options_add_tls_alpn": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_tls_ciphers": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_connection_options_set_tls_crl_file": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_tls_key_log_file": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_proxy": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_proxy_from_environment": (STATUS, (HANDLE, c_bool)),
    "blip_connection_options_set_proxy_tls_ca_file": (STATUS, (HANDLE, SLICE)),
    "blip_connection_options_set_local_address": (STATUS, (HANDLE, SLICE, c_uint16)),
    "blip_connection_options_set_ip_policy": (STATUS, (HANDLE, c_int32)),
    "blip_connection_options_set_service_lookup": (STATUS, (HANDLE, c_bool)),
    "blip_url_check": (STATUS, (SLICE, POINTER(HANDLE))),
    "blip_connection_new": (STATUS, (HANDLE, SLICE, HANDLE, POINTER(HANDLE))),
    "blip_transport_new": (STATUS, (FUNCTION, c_void_p, FUNCTION, POINTER(HANDLE))),
    "blip_transport_retain": (HANDLE, (HANDLE,)),
    "blip_transport_release": (None, (HANDLE,)),
    "blip_transport_set_close_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_transport_set_resume_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_transport_did_open": (STATUS, (HANDLE,)),
    "blip_transport_did_receive": (STATUS, (HANDLE, SLICE)),
    "blip_transport_did_drain": (STATUS, (HANDLE,)),
    "blip_transport_did_close": (STATUS, (HANDLE, c_int32)),
    "blip_connection_from_transport": (STATUS, (HANDLE, HANDLE, SLICE, HANDLE, POINTER(HANDLE))),
    "blip_connection_pair": (STATUS, (HANDLE, HANDLE, HANDLE, POINTER(HANDLE), POINTER(HANDLE))),
    "blip_listener_connect": (STATUS, (HANDLE, HANDLE, HANDLE, POINTER(HANDLE))),
    "blip_connection_from_fd": (STATUS, (HANDLE, c_int, SLICE, HANDLE, POINTER(HANDLE))),
    "blip_connection_retain": (HANDLE, (HANDLE,)),
    "blip_connection_release": (None, (HANDLE,)),
    "blip_connection_set_handler": (
        STATUS,
        (HANDLE, SLICE, c_uint32, FUNCTION, c_void_p, FUNCTION),
    ),
    "blip_connection_remove_handler": (STATUS, (HANDLE, SLICE)),
    "blip_connection_set_default_handler": (
        STATUS,
        (HANDLE, c_uint32, FUNCTION, c_void_p, FUNCTION),
    ),
    "blip_connection_set_open_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_set_close_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_set_state_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_set_trust_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_set_timeout_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_perform_fd": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_set_challenge_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_set_close_request_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_answer_close_request": (STATUS, (HANDLE, c_bool)),
    "blip_connection_say_bye": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_connect": (STATUS, (HANDLE,)),
    "blip_connection_wait_open": (STATUS, (HANDLE, c_int64)),
    "blip_connection_close": (STATUS, (HANDLE, c_uint16, SLICE)),
    "blip_connection_close_gracefully": (STATUS, (HANDLE, c_int64)),
    "blip_connection_wait_closed": (STATUS, (HANDLE, c_int64)),
    "blip_connection_state": (STATUS, (HANDLE, POINTER(c_int32))),
    "blip_connection_is_active": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_connection_user": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_defer_accept": (STATUS, (HANDLE,)),
    "blip_connection_accept": (STATUS, (HANDLE, SLICE)),
    "blip_connection_reject": (STATUS, (HANDLE, c_int32, SLICE)),
    "blip_connection_add_response_header": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_connection_credential_scheme": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_credential_user": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_credential_secret": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_credential_parameter": (STATUS, (HANDLE, SLICE, POINTER(OutSlice))),
    "blip_connection_check_password": (STATUS, (HANDLE, SLICE, POINTER(c_bool))),
    "blip_listener_options_set_realm": (STATUS, (HANDLE, SLICE)),
    "blip_listener_options_add_user": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_listener_options_add_user_hash": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_listener_options_add_origin": (STATUS, (HANDLE, SLICE)),
    "blip_listener_options_add_host": (STATUS, (HANDLE, SLICE)),
    "blip_password_hash": (STATUS, (SLICE, c_void_p, c_size_t, POINTER(c_size_t))),
    "blip_connection_url": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_error": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_connection_close_code": (STATUS, (HANDLE, POINTER(c_int32))),
    "blip_connection_protocol_version": (STATUS, (HANDLE, POINTER(c_int32))),
    "blip_connection_subprotocol": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_is_incoming": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_connection_local_address": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_remote_address": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_is_secure": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_connection_tls_version": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_tls_cipher": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_peer_certificate": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_tls_alpn": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_tls_is_resumed": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_connection_local_sockaddr": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_remote_sockaddr": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_is_ipv4": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_connection_is_ipv6": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_connection_request_path": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_connection_http_header": (STATUS, (HANDLE, SLICE, POINTER(OutSlice))),
    "blip_connection_set_user_data": (STATUS, (HANDLE, c_void_p, FUNCTION)),
    "blip_connection_user_data": (STATUS, (HANDLE, POINTER(c_void_p))),
    "blip_connection_backlog": (STATUS, (HANDLE, POINTER(c_uint64))),
    "blip_connection_ping": (STATUS, (HANDLE, c_int64, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_counter_values": (STATUS, (HANDLE, POINTER(c_int32), POINTER(c_uint64), c_size_t)),
    "blip_challenge_retain": (HANDLE, (HANDLE,)),
    "blip_challenge_release": (None, (HANDLE,)),
    "blip_challenge_connection": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_challenge_host": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_challenge_is_proxy": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_challenge_attempts": (STATUS, (HANDLE, POINTER(c_uint32))),
    "blip_challenge_count": (STATUS, (HANDLE, POINTER(c_size_t))),
    "blip_challenge_scheme": (STATUS, (HANDLE, c_size_t, POINTER(OutSlice))),
    "blip_challenge_parameter": (STATUS, (HANDLE, c_size_t, SLICE, POINTER(OutSlice))),
    "blip_challenge_answer_password": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_challenge_answer_token": (STATUS, (HANDLE, SLICE)),
    "blip_challenge_answer_header": (STATUS, (HANDLE, SLICE)),
    "blip_challenge_cancel": (STATUS, (HANDLE,)),
    "blip_connection_send": (STATUS, (HANDLE, HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_request": (STATUS, (HANDLE, HANDLE, c_int64, POINTER(HANDLE))),
    "blip_request_new": (STATUS, (SLICE, POINTER(HANDLE))),
    "blip_message_retain": (HANDLE, (HANDLE,)),
    "blip_message_release": (None, (HANDLE,)),
    "blip_message_type": (STATUS, (HANDLE, POINTER(c_int32))),
    "blip_message_number": (STATUS, (HANDLE, POINTER(c_uint64))),
    "blip_message_is_mine": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_message_is_mutable": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_message_is_complete": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_message_is_sent": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_message_connection": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_message_flags": (STATUS, (HANDLE, POINTER(c_uint32))),
    "blip_message_set_flags": (STATUS, (HANDLE, c_uint32)),
    "blip_message_set_compressed": (STATUS, (HANDLE, c_bool)),
    "blip_message_set_urgent": (STATUS, (HANDLE, c_bool)),
    "blip_message_set_no_reply": (STATUS, (HANDLE, c_bool)),
    "blip_message_profile": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_message_set_profile": (STATUS, (HANDLE, SLICE)),
    "blip_message_content_type": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_message_set_content_type": (STATUS, (HANDLE, SLICE)),
    "blip_message_property": (STATUS, (HANDLE, SLICE, POINTER(OutSlice))),
    "blip_message_set_property": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_message_remove_property": (STATUS, (HANDLE, SLICE)),
    "blip_message_property_count": (STATUS, (HANDLE, POINTER(c_size_t))),
    "blip_message_property_at": (STATUS, (HANDLE, c_size_t, POINTER(OutSlice), POINTER(OutSlice))),
    "blip_message_properties": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_message_set_properties": (STATUS, (HANDLE, SLICE)),
    "blip_message_set_body": (STATUS, (HANDLE, SLICE)),
    "blip_message_append_body": (STATUS, (HANDLE, SLICE)),
    "blip_message_append_body_borrowed": (STATUS, (HANDLE, SLICE, FUNCTION, c_void_p)),
    "blip_message_append_body_file": (STATUS, (HANDLE, c_int, c_uint64, c_uint64, c_bool)),
    "blip_message_append_body_pulled": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_message_resume_body": (STATUS, (HANDLE,)),
    "blip_message_append_body_pushed": (STATUS, (HANDLE,)),
    "blip_message_push_body": (STATUS, (HANDLE, Slice, c_bool)),
    "blip_message_set_text": (STATUS, (HANDLE, SLICE)),
    "blip_message_set_json": (STATUS, (HANDLE, SLICE)),
    "blip_message_body": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_message_body_size": (STATUS, (HANDLE, POINTER(c_uint64))),
    "blip_message_set_streamed": (STATUS, (HANDLE, c_bool)),
    "blip_message_set_data_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_message_read": (STATUS, (HANDLE, c_void_p, c_size_t, POINTER(c_size_t))),
    "blip_message_read_wait": (STATUS, (HANDLE, c_void_p, c_size_t, c_int64, POINTER(c_size_t))),
    "blip_message_set_sent_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_message_set_progress_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_message_bytes_sent": (STATUS, (HANDLE, POINTER(c_uint64))),
    "blip_message_wait_sent": (STATUS, (HANDLE, c_int64)),
    "blip_message_set_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_message_cancel": (STATUS, (HANDLE,)),
    "blip_message_set_user_data": (STATUS, (HANDLE, c_void_p, FUNCTION)),
    "blip_message_user_data": (STATUS, (HANDLE, POINTER(c_void_p))),
    "blip_message_describe": (STATUS, (HANDLE, c_bool, POINTER(OutSlice))),
    "blip_message_copy": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_response_new": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_message_respond": (STATUS, (HANDLE, HANDLE)),
    "blip_message_respond_data": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_message_respond_text": (STATUS, (HANDLE, SLICE)),
    "blip_message_respond_json": (STATUS, (HANDLE, SLICE)),
    "blip_message_respond_empty": (STATUS, (HANDLE,)),
    "blip_message_respond_error": (STATUS, (HANDLE, SLICE, c_int32, SLICE)),
    "blip_message_defer": (STATUS, (HANDLE,)),
    "blip_message_is_responded": (STATUS, (HANDLE, POINTER(c_bool))),
    "blip_message_error": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_listener_options_new": (HANDLE, ()),
    "blip_listener_options_release": (None, (HANDLE,)),
    "blip_listener_options_add_subprotocol": (STATUS, (HANDLE, SLICE)),
    "blip_listener_options_add_path": (STATUS, (HANDLE, SLICE)),
    "blip_listener_options_set_queue": (STATUS, (HANDLE, HANDLE)),
    "blip_listener_options_set_tls_identity": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_listener_options_set_tls_client_ca_file": (STATUS, (HANDLE, SLICE, c_bool)),
    "blip_listener_options_set_tls_versions": (STATUS, (HANDLE, c_int32, c_int32)),
    "blip_listener_options_add_tls_alpn": (STATUS, (HANDLE, SLICE)),
    "blip_listener_options_set_tls_ciphers": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_listener_options_set_tls_crl_file": (STATUS, (HANDLE, SLICE)),
    "blip_listener_options_set_tls_key_log_file": (STATUS, (HANDLE, SLICE)),
    "blip_listener_options_set_handshake_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_listener_options_set_close_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_listener_options_set_bye_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_listener_options_set_half_close": (STATUS, (HANDLE, c_int64)),
    "blip_listener_options_set_read_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_listener_options_set_write_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_listener_options_set_blip1": (STATUS, (HANDLE, c_bool)),
    "blip_listener_options_set_websocket": (STATUS, (HANDLE, c_bool)),
    "blip_listener_options_set_ping": (STATUS, (HANDLE, c_int64, c_uint32)),
    "blip_listener_options_set_frame_size": (STATUS, (HANDLE, c_uint32)),
    "blip_listener_options_set_compression_level": (STATUS, (HANDLE, c_int32)),
    "blip_listener_options_set_limit": (STATUS, (HANDLE, c_int32, c_uint64)),
    "blip_listener_options_set_max_connections": (STATUS, (HANDLE, c_uint32)),
    "blip_listener_new": (STATUS, (HANDLE, HANDLE, POINTER(HANDLE))),
    "blip_listener_retain": (HANDLE, (HANDLE,)),
    "blip_listener_release": (None, (HANDLE,)),
    "blip_listener_set_handler": (STATUS, (HANDLE, SLICE, c_uint32, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_set_default_handler": (STATUS, (HANDLE, c_uint32, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_set_accept_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_set_open_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_set_close_request_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_set_close_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_set_trust_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_set_timeout_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_set_stopped_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_start": (STATUS, (HANDLE, SLICE, c_uint16)),
    "blip_listener_start_unix": (STATUS, (HANDLE, SLICE)),
    "blip_listener_start_fd": (STATUS, (HANDLE, c_int)),
    "blip_listener_start_systemd": (STATUS, (HANDLE, SLICE)),
    "blip_listener_accept_fd": (STATUS, (HANDLE, c_int)),
    "blip_listener_port": (STATUS, (HANDLE, POINTER(c_uint16))),
    "blip_listener_url": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_listener_port_at": (STATUS, (HANDLE, c_size_t, POINTER(c_uint16))),
    "blip_listener_url_at": (STATUS, (HANDLE, c_size_t, POINTER(OutSlice))),
    "blip_listener_connection_count": (STATUS, (HANDLE, POINTER(c_size_t))),
    "blip_listener_stop": (STATUS, (HANDLE, c_bool, c_int64)),
    "blip_listener_wait_stopped": (STATUS, (HANDLE, c_int64)),
    "blip_listener_error": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_files_options_new": (HANDLE, ()),
    "blip_files_options_release": (None, (HANDLE,)),
    "blip_files_options_set_writable": (STATUS, (HANDLE, c_bool)),
    "blip_files_options_set_replace": (STATUS, (HANDLE, c_bool)),
    "blip_files_options_set_hidden": (STATUS, (HANDLE, c_bool)),
    "blip_files_options_set_upload_limit": (STATUS, (HANDLE, c_uint64)),
    "blip_listener_serve_files": (STATUS, (HANDLE, SLICE, SLICE, HANDLE)),
    "blip_listener_serve_dashboard": (STATUS, (HANDLE, SLICE)),
    "blip_connection_counters": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_listener_counters": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_runtime_counters": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_runtime_metrics_text": (STATUS, (HANDLE, POINTER(HANDLE), POINTER(OutSlice))),
    "blip_counters_new": (HANDLE, ()),
    "blip_counters_retain": (HANDLE, (HANDLE,)),
    "blip_counters_release": (None, (HANDLE,)),
    "blip_counters_value": (STATUS, (HANDLE, c_int32, POINTER(c_uint64))),
    "blip_counters_add": (STATUS, (HANDLE, HANDLE)),
    "blip_counters_percentile": (STATUS, (HANDLE, c_double, POINTER(c_int64))),
    "blip_counters_bucket": (STATUS, (HANDLE, c_size_t, POINTER(c_uint64), POINTER(c_uint64))),
    "blip_listener_options_set_metrics_path": (STATUS, (HANDLE, SLICE)),
    "blip_code_message": (c_char_p, (c_int32,)),
    "blip_connection_options_set_ping_only_idle": (STATUS, (HANDLE, c_bool)),
    "blip_connection_perform": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_listener_options_set_ping_only_idle": (STATUS, (HANDLE, c_bool)),
    "blip_module_new": (STATUS, (SLICE, POINTER(HANDLE))),
    "blip_module_retain": (HANDLE, (HANDLE,)),
    "blip_module_release": (None, (HANDLE,)),
    "blip_module_name": (STATUS, (HANDLE, POINTER(OutSlice))),
    "blip_module_set_observer": (STATUS, (HANDLE, c_uint32, HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_module_set_interceptor": (STATUS, (HANDLE, c_uint32, FUNCTION, c_void_p, FUNCTION)),
    "blip_module_set_handler": (STATUS, (HANDLE, SLICE, c_uint32, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_add_module": (STATUS, (HANDLE, HANDLE)),
    "blip_connection_remove_module": (STATUS, (HANDLE, HANDLE)),
    "blip_connection_module_at": (STATUS, (HANDLE, c_size_t, POINTER(HANDLE))),
    "blip_listener_add_module": (STATUS, (HANDLE, HANDLE)),
    "blip_listener_remove_module": (STATUS, (HANDLE, HANDLE)),
    "blip_listener_module_at": (STATUS, (HANDLE, c_size_t, POINTER(HANDLE))),
    "blip_runtime_add_module": (STATUS, (HANDLE, HANDLE)),
    "blip_runtime_remove_module": (STATUS, (HANDLE, HANDLE)),
    "blip_runtime_module_at": (STATUS, (HANDLE, c_size_t, POINTER(HANDLE))),
    "blip_reconnector_new": (STATUS, (HANDLE, SLICE, HANDLE, POINTER(HANDLE))),
    "blip_reconnector_retain": (HANDLE, (HANDLE,)),
    "blip_reconnector_release": (None, (HANDLE,)),
    "blip_reconnector_set_backoff": (STATUS, (HANDLE, c_int64, c_int64, c_uint32)),
    "blip_reconnector_set_attempts": (STATUS, (HANDLE, c_uint32)),
    "blip_reconnector_set_stable_time": (STATUS, (HANDLE, c_int64)),
    "blip_reconnector_set_carry_over": (STATUS, (HANDLE, c_bool)),
    "blip_reconnector_set_persistent": (STATUS, (HANDLE, c_bool)),
    "blip_reconnector_set_state_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_reconnector_add_module": (STATUS, (HANDLE, HANDLE)),
    "blip_reconnector_remove_module": (STATUS, (HANDLE, HANDLE)),
    "blip_reconnector_start": (STATUS, (HANDLE,)),
    "blip_reconnector_stop": (STATUS, (HANDLE, c_int64)),
    "blip_reconnector_wake": (STATUS, (HANDLE,)),
    "blip_reconnector_wait_open": (STATUS, (HANDLE, c_int64)),
    "blip_reconnector_wait_stopped": (STATUS, (HANDLE, c_int64)),
    "blip_connection_set_tls_server_name": (STATUS, (HANDLE, SLICE)),
    "blip_reconnector_state": (STATUS, (HANDLE, POINTER(c_int32))),
    "blip_reconnector_delay": (STATUS, (HANDLE, POINTER(c_int64))),
    "blip_reconnector_error": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_reconnector_connection": (STATUS, (HANDLE, POINTER(HANDLE))),
    "blip_reconnector_send": (STATUS, (HANDLE, HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_reconnector_request": (STATUS, (HANDLE, HANDLE, c_int64, POINTER(HANDLE))),
    "blip_pool_new": (STATUS, (HANDLE, HANDLE, POINTER(HANDLE))),
    "blip_pool_retain": (HANDLE, (HANDLE,)),
    "blip_pool_release": (None, (HANDLE,)),
    "blip_pool_add_module": (STATUS, (HANDLE, HANDLE)),
    "blip_pool_set_idle_timeout": (STATUS, (HANDLE, c_int64)),
    "blip_pool_connection": (STATUS, (HANDLE, SLICE, POINTER(HANDLE))),
    "blip_pool_existing_connection": (STATUS, (HANDLE, SLICE, POINTER(HANDLE))),
    "blip_pool_count": (STATUS, (HANDLE, POINTER(c_size_t))),
    "blip_pool_close_all": (STATUS, (HANDLE, c_uint16, SLICE)),
    "blip_connection_set_backlog_callback": (STATUS, (HANDLE, c_uint64, c_uint64, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_set_frame_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_connection_send_data": (STATUS, (HANDLE, SLICE, SLICE, c_uint32, FUNCTION, c_void_p, FUNCTION)),
    "blip_message_pause_reading": (STATUS, (HANDLE,)),
    "blip_message_resume_reading": (STATUS, (HANDLE,)),
    "blip_message_set_trace_context": (STATUS, (HANDLE, SLICE, SLICE)),
    "blip_message_trace_context": (STATUS, (HANDLE, POINTER(OutSlice), POINTER(OutSlice))),
    "blip_message_continue_trace": (STATUS, (HANDLE, HANDLE)),
    "blip_message_begin_trace": (STATUS, (HANDLE, c_bool)),
    "blip_response_set_error": (STATUS, (HANDLE, SLICE, c_int32, SLICE)),
    "blip_listener_set_frame_callback": (STATUS, (HANDLE, FUNCTION, c_void_p, FUNCTION)),
    "blip_runtime_options_set_memory_limit": (STATUS, (HANDLE, c_uint64)),
}


class Status(enum.IntEnum):
    """The statuses of libblip. A status that this version does not know stays a plain integer."""

    OK = 0
    HANDLE = -1
    ARGUMENT = -2
    TEXT = -3
    IMMUTABLE = -4
    WOULD_DEADLOCK = -5
    FORKED = -6
    URL = -7
    NOT_FOUND = -8
    UNSUPPORTED = -9
    STATE = -50
    CLOSED = -51
    CANCELLED = -52
    TIMEOUT = -53
    NO_REPLY = -54
    ALREADY_RESPONDED = -55
    NOT_COMPLETE = -56
    STOPPED = -57
    FILTERED = -58
    PROTOCOL = -100
    WEBSOCKET = -101
    SUBPROTOCOL = -102
    PEER_CLOSED = -103
    PROPERTIES = -104
    BODY = -105
    NETWORK = -200
    RESOLVE = -201
    REFUSED = -202
    UNREACHABLE = -203
    CONNECTION_LOST = -204
    ADDRESS_IN_USE = -205
    PERMISSION = -206
    PEER_SILENT = -207
    FILE = -208
    PROXY = -209
    TLS = -300
    CERTIFICATE = -301
    TLS_SETUP = -302
    HTTP = -400
    HTTP_STATUS = -401
    LIMIT = -500
    RESOURCES = -501
    INTERNAL = -900


LOG_ERROR = 1
LOG_WARNING = 2
LOG_INFO = 3
LOG_DEBUG = 4
EVENT_REQUEST = 1
EVENT_RESPONSE = 2
EVENT_DATA = 3
EVENT_SENT = 4
EVENT_SEND_PROGRESS = 5
EVENT_STATE = 6
EVENT_OPEN = 7
EVENT_CLOSE = 8
EVENT_PONG = 9
EVENT_ACCEPT = 10
EVENT_LISTENER_STOPPED = 11
EVENT_BYE = 12
EVENT_CLOSE_REQUEST = 13
EVENT_BACKLOG = 14
EVENT_TRUST = 15
EVENT_CHALLENGE = 16
EVENT_OBSERVED = 17
EVENT_RECONNECTOR = 18
EVENT_LOG = 19
COOKIES_SIZE = 8192
PASSWORD_HASH_SIZE = 256
DATA_END = 1
AGAIN = 2
TLS_1_2 = 0x0303
TLS_1_3 = 0x0304
IP_ANY = 0
IP_PREFER_4 = 1
IP_PREFER_6 = 2
IP_ONLY_4 = 3
IP_ONLY_6 = 4
LIMIT_INCOMING_FRAME = 1
LIMIT_PROPERTIES = 2
LIMIT_MESSAGE = 3
LIMIT_UNFINISHED_MESSAGES = 4
LIMIT_UNFINISHED_BYTES = 5
LIMIT_HTTP_HEAD = 6
LIMIT_RESPONSES = 7
STATE_NEW = 0
STATE_CONNECTING = 1
STATE_OPEN = 2
STATE_CLOSING = 3
STATE_CLOSED = 4
HANDLER_STREAM = 1
COUNTER_MESSAGES_SENT = 1
COUNTER_MESSAGES_RECEIVED = 2
COUNTER_FRAMES_SENT = 3
COUNTER_FRAMES_RECEIVED = 4
COUNTER_BYTES_SENT = 5
COUNTER_BYTES_RECEIVED = 6
COUNTER_REQUESTS_PENDING = 7
COUNTER_REQUESTS_UNANSWERED = 8
COUNTER_MESSAGES_QUEUED = 9
MESSAGE_REQUEST = 0
MESSAGE_RESPONSE = 1
MESSAGE_ERROR = 2
FLAG_COMPRESSED = 0x08
FLAG_URGENT = 0x10
FLAG_NO_REPLY = 0x20
COUNTER_COMPRESSION_INPUT = 10
COUNTER_COMPRESSION_OUTPUT = 11
COUNTER_DECOMPRESSION_INPUT = 12
COUNTER_DECOMPRESSION_OUTPUT = 13
COUNTER_ERRORS_SENT = 14
COUNTER_ERRORS_RECEIVED = 15
COUNTER_ROUND_TRIPS = 16
COUNTER_ROUND_TRIP_TIME = 17
COUNTER_READING_PAUSED_TIME = 18
COUNTER_SENDING_PAUSED_TIME = 19
COUNTER_MESSAGES_PAUSED = 20
COUNTER_MESSAGES_UNFINISHED = 21
COUNTER_MEMORY = 22
COUNTER_BACKLOG = 23
COUNTER_CONNECTIONS = 24
COUNTER_CONNECTIONS_OPENED = 25
COUNTER_CONNECTIONS_FAILED = 26
CODE_BAD_DATA = 1
CODE_BAD_FRAME = 2
CODE_DISCONNECTED = 3
CODE_PEER_NOT_ALLOWED = 4
CODE_MISC = 99
CODE_BAD_REQUEST = 400
CODE_FORBIDDEN = 403
CODE_NOT_FOUND = 404
CODE_BAD_RANGE = 416
CODE_HANDLER_FAILED = 501
CODE_UNSPECIFIED = 599
OBSERVE_WILL_CONNECT = 0x0001
OBSERVE_CONNECTED = 0x0002
OBSERVE_WILL_SECURE = 0x0004
OBSERVE_SECURED = 0x0008
OBSERVE_WILL_AUTHENTICATE = 0x0010
OBSERVE_AUTHENTICATED = 0x0020
OBSERVE_OPEN = 0x0040
OBSERVE_CONNECT_TIMED_OUT = 0x0080
OBSERVE_WILL_CLOSE = 0x0100
OBSERVE_CLOSED = 0x0200
OBSERVE_SENT = 0x0400
OBSERVE_NOT_SENT = 0x0800
OBSERVE_REQUEST = 0x1000
OBSERVE_RESPONSE = 0x2000
OBSERVE_FILTERED = 0x4000
OBSERVE_ALL = 0xffffffff
INTERCEPT_SEND = 1
INTERCEPT_RECEIVE = 2
RECONNECTOR_NEW = 0
RECONNECTOR_CONNECTING = 1
RECONNECTOR_OPEN = 2
RECONNECTOR_WAITING = 3
RECONNECTOR_STOPPED = 4
DOMAIN_BLIP = "BLIP"
DOMAIN_WEBSOCKET = "WebSocket"
DOMAIN_HTTP = "HTTP"
DOMAIN_POSIX = "POSIX"
DOMAIN_TLS = "TLS"
DOMAIN_DNS = "DNS"


_keeping, _releasing, LIBRARY_PATH = load()


def _declare(library: Any, name: str) -> Callable[..., Any]:
    result, arguments = PROTOTYPES[name]
    try:
        function: Any = library[name]
    except AttributeError:
        raise LibraryNotFound(
            f"{LIBRARY_PATH} does not export {name}: it is older than this binding, or not libblip"
        ) from None
    function.restype = result
    function.argtypes = arguments
    return function  # type: ignore[no-any-return]


def bind(name: str) -> Callable[..., Any]:
    """The function of that name, called with the GIL held: only for what never waits."""
    return _declare(_keeping, name)


def bind_waiting(name: str) -> Callable[..., Any]:
    """The function of that name, called with the GIL released."""
    return _declare(_releasing, name)


EMPTY = Slice(None, 0)


def text(value: str) -> Slice:
    data = value.encode()
    return Slice(data, len(data))


def take(out: OutSlice) -> bytes:
    """A copy of what a result refers to."""
    return string_at(out.data, out.size) if out.size else b""


VERSION: str = bind("blip_version_string")().decode()
if bind("blip_version_number")() // 1000000 != 1:
    raise LibraryNotFound(f"{LIBRARY_PATH} is libblip {VERSION}; this binding needs version 1")
