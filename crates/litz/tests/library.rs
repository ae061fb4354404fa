//! The library as its users see it: every scenario over both wires and under every placement.

#[path = "library/world.rs"]
mod world;

#[path = "library/bytes.rs"]
mod bytes_scenarios;
#[path = "library/classes.rs"]
mod classes;
#[path = "library/ends.rs"]
mod ends;
#[path = "library/many.rs"]
mod many;
#[path = "library/units_of_data.rs"]
mod units_of_data;

use litz::Placement;
use world::{Arm, Wire};

/// One test of each scenario in each arm.
macro_rules! scenarios {
    ($($module:ident::$name:ident),* $(,)?) => {
        scenarios!(@arm udp_thread, Wire::Udp, Placement::Thread, $($module::$name),*);
        scenarios!(@arm udp_inline, Wire::Udp, Placement::Inline, $($module::$name),*);
        scenarios!(@arm memory_thread, Wire::Memory, Placement::Thread, $($module::$name),*);
        scenarios!(@arm memory_inline, Wire::Memory, Placement::Inline, $($module::$name),*);
        scenarios!(@arm udp_packet, Wire::Udp, Placement::Packet(3), $($module::$name),*);
        scenarios!(@arm udp_split, Wire::Udp, Placement::Split, $($module::$name),*);
        scenarios!(@arm memory_split, Wire::Memory, Placement::Split, $($module::$name),*);
        scenarios!(@arm udp_path, Wire::Udp, Placement::Path(2), $($module::$name),*);
        scenarios!(@arm memory_path, Wire::Memory, Placement::Path(2), $($module::$name),*);
        scenarios!(@arm udp_connection, Wire::Udp, Placement::Connection(3), $($module::$name),*);
        scenarios!(@arm memory_packet, Wire::Memory, Placement::Packet(2), $($module::$name),*);
    };
    (@arm $arm:ident, $wire:expr, $placement:expr, $($module:ident::$name:ident),*) => {
        mod $arm {
            use super::*;
            $(#[test] fn $name() { $module::$name(Arm { wire: $wire, placement: $placement }); })*
        }
    };
}

scenarios! {
    bytes_scenarios::an_echo_comes_back,
    bytes_scenarios::sixty_four_megabytes_arrive_as_they_left,
    bytes_scenarios::a_flush_sends_what_a_long_write_held_back,
    bytes_scenarios::two_hundred_streams_at_once_all_arrive,
    many::sixty_four_connections_share_one_driver_fairly,
    many::a_stream_that_nobody_reads_stalls_no_other_stream_and_no_other_connection,
    many::a_writer_is_held_back_before_memory_grows,
    many::many_threads_use_one_connection_at_the_same_time,
    many::opening_waits_for_the_peer_to_allow_more,
    classes::rates_of_streams_messages_and_connections_are_kept,
    classes::urgent_messages_overtake_those_that_wait,
    classes::messages_that_may_not_go_stop_no_others,
    classes::urgent_messages_find_a_stream_beside_a_heap_of_small_ones,
    classes::a_stream_waits_for_its_paths,
    classes::connections_have_the_processor_they_ask_for,
    ends::dropping_a_side_of_a_stream_tells_the_peer,
    ends::the_last_handle_closes_and_a_close_carries_code_and_reason,
    ends::dropping_an_endpoint_says_goodbye_and_returns_soon,
    ends::an_address_without_anybody_times_out_with_a_clear_error,
    ends::a_wrong_host_and_a_wrong_family_are_told_apart,
    ends::a_server_comes_back_at_its_old_address,
    ends::clients_beyond_the_limits_are_not_answered,
    ends::waiting_with_a_timeout_ends_in_time,
    ends::datagrams_of_strangers_without_sense_harm_nobody,
    units_of_data::datagrams_arrive_as_they_left,
    units_of_data::a_peer_that_takes_no_datagrams_is_known,
    units_of_data::messages_arrive_whole_and_each_once,
    units_of_data::a_message_longer_than_the_receiver_takes_is_refused_alone,
    units_of_data::messages_and_streams_that_came_before_the_end_are_there_after_it,
    units_of_data::both_ends_agree_on_keys_identities_and_addresses,
}
