//! What every store must do: the same cases over the in-memory one and over a real Redis.
//!
//! A case is a function of a [`world::World`]. What only one of them can show stands in
//! `on_redis` and `refusals` (the server) and `connections` (the way to it).

mod agreement;
pub mod asker;
mod connections;
mod epochs;
mod fences;
mod garbage;
mod infos;
mod leases;
mod messages;
mod on_redis;
mod reads;
mod refusals;
mod results;
mod revocations;
mod role_keys;
mod roles;
mod verdicts;
pub mod world;

/// Two tests of every case: one in memory, one on a Redis.
macro_rules! contract {
    ($memory:ident $redis:ident of $world:ident: $($module:ident { $($case:ident)* })*) => {
        mod $memory { $($(
            #[test]
            fn $case() {
                crate::store::contract::$module::$case(
                    &mut crate::store::contract::world::MemoryWorld::$world(),
                );
            }
        )*)* }

        mod $redis { $($(
            #[test]
            fn $case() {
                crate::store::contract::$module::$case(
                    &mut crate::store::contract::world::RedisWorld::$world(),
                );
            }
        )*)* }
    };
}

// Leases on endpoints.
contract! {
    memory redis of new:
    leases {
        a_free_lease_is_granted_once
        a_lease_is_free_again_after_its_ttl
        only_the_owner_renews
        only_the_owner_releases
        meeting_its_own_id_is_a_new_grant
        an_earlier_grant_of_ones_own_counts_for_nothing
        a_forgotten_lease_is_reclaimed_under_its_fence
        a_forgotten_fence_is_written_back_by_the_next_renewal
        a_lease_granted_to_another_meanwhile_is_not_reclaimed
        a_lease_past_its_deadline_is_not_reclaimed
        a_matched_lease_is_kept_by_its_owners_name
        a_matched_lease_of_another_epoch_is_not_kept
        a_late_acquire_refuses_itself
        a_late_acquire_neither_adopts_nor_takes_over
        a_late_renewal_keeps_a_lease_but_reclaims_none
        a_renewal_after_the_release_cannot_bring_the_lease_back
        the_release_of_a_missing_lease_ends_its_tenure_too
        a_late_release_leaves_the_next_owner_alone
        a_late_release_leaves_ones_own_next_tenure_alone
        what_is_ours_by_its_name_is_given_back
        a_late_release_by_name_leaves_ones_own_next_tenure_alone
        a_late_release_by_name_leaves_what_was_put_back_alone
        a_late_release_by_name_leaves_what_was_confirmed_anew_alone
        a_late_release_by_name_leaves_all_that_was_heard_of_alone
        a_late_release_by_name_opens_no_door_that_a_later_one_closed
        of_many_that_are_given_back_by_name_each_is_told
        a_renewal_asked_for_before_the_release_cannot_bring_the_lease_back
        where_nothing_is_known_of_the_last_grant_a_release_compares_the_fence
        a_lease_is_taken_from_an_owner_without_heartbeat
        nothing_is_granted_to_an_instance_without_heartbeat
        verify_says_whose_a_lease_is
        a_lease_with_too_long_or_no_end_is_cut_to_the_ttl
        a_batch_of_five_hundred_is_answered_item_by_item
        revoking_frees_the_leases_of_the_dead_and_no_other
    }
    revocations {
        a_revoked_instance_is_refused_everything
        leases_of_a_revoked_instance_are_taken_over_when_its_verification_has_ended
        a_revoked_instance_comes_back_when_it_has_obeyed
        only_an_instance_that_looks_dead_is_revoked
        nobody_is_revoked_in_a_hold_off
        a_fleet_revokes_thirty_instances_in_a_minute
        nothing_is_verified_at_the_beginning_of_an_epoch
        a_revocation_ends_in_time_although_the_clock_was_set_back
    }
    epochs {
        the_first_start_ever_waits
        a_hold_off_ends_by_itself_after_ttl_and_margin
        the_word_that_the_fleet_is_new_skips_only_a_missing_epoch
        a_running_instance_does_not_skip_the_hold_off_of_a_flush
        a_call_that_names_an_earlier_epoch_changes_nothing
        a_call_that_names_a_later_epoch_begins_one_beyond_it
        a_flush_begins_an_epoch_never_seen_before
        a_restart_without_data_begins_a_hold_off_in_which_leases_are_reclaimed
        a_restart_from_a_snapshot_begins_a_hold_off_in_which_nothing_is_adopted
        in_a_hold_off_tenures_go_on_and_nothing_is_granted
        in_a_hold_off_a_lease_without_end_is_cut_to_the_ttl
        a_suspicion_begins_one_epoch_however_many_share_it
        a_loss_of_memory_begins_a_life_and_a_suspicion_only_an_epoch
        a_clock_set_back_restarts_the_hold_off
        another_lease_ttl_is_refused_with_both_values
        a_fleet_corrects_the_timing_of_a_newcomer_that_came_first_after_a_loss
        a_heartbeat_says_whether_the_one_before_was_still_there
        a_heartbeat_is_kept_by_the_next
        a_late_heartbeat_does_not_revive_who_has_withdrawn
        an_instance_is_drained_by_its_id_and_by_its_host
        a_withdrawn_heartbeat_is_gone_at_once
    }
    fences {
        a_fence_grows_over_grants_releases_and_losses
        a_fence_grows_over_a_flush
        a_fence_grows_by_the_servers_clock_alone
        a_fence_grows_over_a_deleted_epoch_and_a_clock_set_back
        a_fence_grows_over_a_reclaim_and_a_deleted_epoch
        a_fence_grows_beyond_one_that_is_ahead_of_the_clock
        what_one_has_seen_raises_the_fences_of_all
        fences_do_not_run_away_once_they_are_ahead_of_the_clock
        in_a_hold_off_fences_are_raised_beyond_what_others_may_have_seen
        a_fence_is_exact_above_two_to_the_fifty_second
    }
    garbage {
        garbage_in_the_epoch_begins_a_new_one_in_which_tenures_go_on
        garbage_in_the_epoch_is_no_missing_epoch
        garbage_in_the_epoch_leaves_what_was_agreed_on
        garbage_in_a_life_cuts_nothing_short
        garbage_in_a_fence_ends_no_tenure_and_no_order
        another_type_in_the_epochs_place_is_told_with_the_way_out
        a_life_that_no_configuration_has_is_refused_and_not_written
        a_late_word_that_the_fleet_is_new_skips_no_hold_off
        the_clock_of_the_server_is_told_and_nothing_is_changed
    }
    results {
        a_result_is_announced_under_the_lease_it_was_polled_under
        a_result_said_twice_is_announced_once
        a_result_of_the_next_grant_is_not_taken_for_the_one_before
        a_late_publish_does_not_bring_back_an_older_result_of_its_tenure
        a_later_grant_counts_for_more_than_a_later_start
        a_result_after_the_loss_of_its_lease_is_refused
        a_refused_result_does_not_spoil_its_batch
        the_next_owner_learns_when_it_was_last_polled
        what_nobody_is_to_poll_is_forgotten_unless_it_comes_back
    }
    verdicts {
        a_verdict_changes_after_enough_results_in_a_row_and_is_announced_once
        a_change_whose_reply_was_lost_is_told_again_to_its_owner_alone
        the_next_owner_goes_on_counting
        an_old_memory_of_a_verdict_counts_for_nothing
        a_store_that_lost_its_verdicts_goes_on_from_what_the_owner_knows
        a_verdict_that_stays_ok_is_not_told_to_an_owner_that_knows_it
    }
    infos {
        what_an_instance_tells_lasts_as_long_as_its_heartbeat
        what_an_instance_tells_goes_with_its_heartbeat
    }
    reads {
        every_session_is_found
        a_session_is_read_as_it_is_unless_too_large
        every_live_instance_is_listed_with_its_weight
        owners_are_told_in_the_order_asked
        a_lease_that_is_free_or_soon_will_be_is_named
    }
    messages {
        a_message_reaches_whom_it_is_for
        all_hear_what_was_granted_and_only_that
        a_subscription_hears_which_sessions_and_heartbeats_were_touched
        a_release_tells_those_who_wait
        all_hear_of_a_withdrawal_and_of_a_revocation
        a_subscription_does_not_outlive_its_server
    }
}

// Leases on roles: the same rules, and what only roles have.
contract! {
    roles_in_memory roles_on_redis of of_roles:
    leases {
        a_free_lease_is_granted_once
        a_lease_is_free_again_after_its_ttl
        only_the_owner_renews
        only_the_owner_releases
        meeting_its_own_id_is_a_new_grant
        an_earlier_grant_of_ones_own_counts_for_nothing
        a_forgotten_lease_is_reclaimed_under_its_fence
        a_lease_granted_to_another_meanwhile_is_not_reclaimed
        a_lease_past_its_deadline_is_not_reclaimed
        a_matched_lease_is_kept_by_its_owners_name
        a_matched_lease_of_another_epoch_is_not_kept
        a_late_acquire_refuses_itself
        a_late_acquire_neither_adopts_nor_takes_over
        a_late_renewal_keeps_a_lease_but_reclaims_none
        a_renewal_after_the_release_cannot_bring_the_lease_back
        the_release_of_a_missing_lease_ends_its_tenure_too
        a_late_release_leaves_the_next_owner_alone
        a_late_release_leaves_ones_own_next_tenure_alone
        a_lease_is_taken_from_an_owner_without_heartbeat
        verify_says_whose_a_lease_is
        a_lease_with_too_long_or_no_end_is_cut_to_the_ttl
    }
    epochs {
        the_first_start_ever_waits
        a_hold_off_ends_by_itself_after_ttl_and_margin
        the_word_that_the_fleet_is_new_skips_only_a_missing_epoch
        a_running_instance_does_not_skip_the_hold_off_of_a_flush
        a_call_that_names_an_earlier_epoch_changes_nothing
        a_call_that_names_a_later_epoch_begins_one_beyond_it
        a_flush_begins_an_epoch_never_seen_before
        a_restart_without_data_begins_a_hold_off_in_which_leases_are_reclaimed
        a_restart_from_a_snapshot_begins_a_hold_off_in_which_nothing_is_adopted
        in_a_hold_off_tenures_go_on_and_nothing_is_granted
        in_a_hold_off_a_lease_without_end_is_cut_to_the_ttl
        a_suspicion_begins_one_epoch_however_many_share_it
        a_loss_of_memory_begins_a_life_and_a_suspicion_only_an_epoch
        a_clock_set_back_restarts_the_hold_off
    }
    fences {
        a_fence_grows_over_grants_releases_and_losses
        a_fence_grows_over_a_flush
        a_fence_grows_by_the_servers_clock_alone
        a_fence_grows_beyond_one_that_is_ahead_of_the_clock
        what_one_has_seen_raises_the_fences_of_all
        fences_do_not_run_away_once_they_are_ahead_of_the_clock
        in_a_hold_off_fences_are_raised_beyond_what_others_may_have_seen
        a_fence_is_exact_above_two_to_the_fifty_second
    }
    garbage {
        garbage_in_the_epoch_begins_a_new_one_in_which_tenures_go_on
        garbage_in_the_epoch_is_no_missing_epoch
        garbage_in_the_epoch_leaves_what_was_agreed_on
        garbage_in_a_life_cuts_nothing_short
        garbage_in_a_fence_ends_no_tenure_and_no_order
        another_type_in_the_epochs_place_is_told_with_the_way_out
        a_life_that_no_configuration_has_is_refused_and_not_written
        a_late_word_that_the_fleet_is_new_skips_no_hold_off
        the_clock_of_the_server_is_told_and_nothing_is_changed
    }
    messages {
        a_message_reaches_whom_it_is_for
        a_release_tells_those_who_wait
        a_subscription_does_not_outlive_its_server
    }
    garbage {
        garbage_in_the_life_of_a_role_holds_off_as_if_nobody_knew_it
    }
    roles {
        who_names_a_role_first_sets_its_ttl
        roles_of_different_ttl_live_side_by_side
        roles_are_verified_together_each_with_its_own_timing
        a_new_role_in_an_old_epoch_needs_no_hold_off
        the_hold_off_of_a_role_is_that_of_its_own_ttl
        in_a_young_epoch_a_role_nobody_knew_holds_off_the_default
        a_role_that_was_led_holds_off_its_own_ttl_in_later_epochs
        who_led_before_a_loss_corrects_a_ttl_that_is_over_already
        who_led_before_a_loss_corrects_the_ttl_of_a_newcomer
        a_grant_and_a_renewal_write_the_heartbeat_and_nothing_else_does
        a_heartbeat_lasts_five_seconds_longer_than_the_role
        a_short_role_does_not_shorten_the_heartbeat_of_a_long_one
        a_heartbeat_just_young_enough_is_no_proof
        a_heartbeat_just_too_old_is_proof
        a_missing_heartbeat_is_no_proof
        nobody_is_stale_in_a_hold_off
        a_successor_takes_the_heartbeat_of_an_expired_leader_away
        a_successor_takes_the_heartbeat_of_a_stale_leader_away
        a_release_takes_the_heartbeat_away
        a_release_of_what_is_anothers_leaves_heartbeats_alone
        a_role_status_says_who_leads_for_how_long_and_since_when
        a_role_status_without_end_is_cut_to_the_ttl
        every_role_ever_led_is_listed
    }
}
