//! Tests of the public interface: every scenario over both media and under every placement.

#[path = "bytes.rs"]
mod bytes_scenarios;
mod classes;
mod ends;
mod incoming;
mod many;
mod path_mtu;
mod path_requests;
mod units_of_data;

use litz::Placement;

use crate::world::{Variant, Wire};

/// One test for each scenario and variant.
macro_rules! scenarios {
    ($($module:ident::$name:ident),* $(,)?) => {
        scenarios!(@variant udp_thread, Wire::Udp, Placement::Thread, $($module::$name),*);
        scenarios!(@variant udp_inline, Wire::Udp, Placement::Inline, $($module::$name),*);
        scenarios!(@variant memory_thread, Wire::Memory, Placement::Thread, $($module::$name),*);
        scenarios!(@variant memory_inline, Wire::Memory, Placement::Inline, $($module::$name),*);
        scenarios!(@variant udp_packet, Wire::Udp, Placement::Packet(3), $($module::$name),*);
        scenarios!(@variant udp_split, Wire::Udp, Placement::Split, $($module::$name),*);
        scenarios!(@variant memory_split, Wire::Memory, Placement::Split, $($module::$name),*);
        scenarios!(@variant udp_path, Wire::Udp, Placement::Path(2), $($module::$name),*);
        scenarios!(@variant memory_path, Wire::Memory, Placement::Path(2), $($module::$name),*);
        scenarios!(@variant udp_connection, Wire::Udp, Placement::Connection(3), $($module::$name),*);
        scenarios!(@variant memory_packet, Wire::Memory, Placement::Packet(2), $($module::$name),*);
    };
    (@variant $variant:ident, $wire:expr, $placement:expr, $($module:ident::$name:ident),*) => {
        mod $variant {
            use super::*;
            $(#[test] fn $name() { $module::$name(Variant { wire: $wire, placement: $placement }); })*
        }
    };
}

scenarios! {
    bytes_scenarios::an_echo_comes_back,
    bytes_scenarios::sixty_four_megabytes_arrive_unchanged,
    bytes_scenarios::a_flush_sends_the_tail_of_a_long_write,
    bytes_scenarios::two_hundred_streams_at_once_all_arrive,
    many::sixty_four_connections_share_one_driver_and_each_gets_its_share,
    many::an_unread_stream_stalls_no_other_stream_and_no_other_connection,
    many::flow_control_stops_a_writer_before_memory_grows,
    many::many_threads_use_one_connection_at_the_same_time,
    many::opening_waits_for_the_peer_to_allow_more,
    classes::rates_of_streams_messages_and_connections_are_kept,
    classes::urgent_messages_overtake_those_that_wait,
    classes::messages_that_cannot_be_sent_block_no_others,
    classes::urgent_messages_get_a_stream_despite_many_small_ones,
    classes::a_stream_waits_for_its_paths,
    classes::connections_have_the_processor_they_ask_for,
    ends::dropping_a_side_of_a_stream_notifies_the_peer,
    ends::the_last_handle_closes_and_a_close_carries_code_and_reason,
    ends::a_connection_closed_at_once_was_connected,
    ends::dropping_an_endpoint_closes_its_connections_and_returns_soon,
    ends::an_address_without_a_peer_times_out_with_a_clear_error,
    ends::a_wrong_host_and_a_wrong_family_have_different_errors,
    ends::a_restarted_server_is_reached_at_its_old_address,
    ends::an_endpoint_is_idle_when_its_connections_are_gone,
    ends::a_sender_learns_that_its_stream_was_stopped,
    ends::clients_beyond_the_limits_are_not_answered,
    ends::a_client_proves_its_address_first,
    ends::a_client_beyond_the_limit_of_connections_is_refused_at_once,
    incoming::the_application_decides_before_the_handshake,
    incoming::a_client_that_comes_back_has_proved_its_address,
    incoming::attempts_are_bounded_and_expire,
    ends::waiting_with_a_timeout_ends_in_time,
    ends::malformed_datagrams_of_unknown_senders_do_no_harm,
    path_mtu::datagrams_grow_to_what_the_path_carries,
    path_requests::a_request_beyond_our_limit_is_refused_with_an_event,
    path_requests::a_request_beyond_the_peers_limit_waits_with_an_event,
    path_requests::several_requests_wait_for_their_own_reasons,
    path_requests::requests_that_never_succeed_are_refused_with_the_reason,
    units_of_data::datagrams_arrive_unchanged,
    units_of_data::a_peer_that_takes_no_datagrams_is_known,
    units_of_data::messages_arrive_whole_and_each_once,
    units_of_data::only_a_message_longer_than_the_receiver_takes_is_refused,
    units_of_data::only_a_long_message_is_refused_after_the_end_too,
    units_of_data::messages_and_streams_received_before_the_end_can_be_read_after_it,
    units_of_data::both_ends_agree_on_keys_identities_and_addresses,
}
