//! Every scenario that the requirements name has its test, and the test is there.

use phalanx_testkit::requirements;

const DOCUMENTS: &str = include_str!("scenarios_documents.rs");
const CRASH: &str = include_str!("scenarios_crash.rs");
const IDENTITY: &str = include_str!("scenarios_identity.rs");
const MESSAGES: &str = include_str!("scenarios_messages.rs");
const MACHINES: &str = include_str!("../../../cluster/tests/unit/machines.rs");
const TRIGGER: &str = include_str!("../../../cluster-core/src/trigger.rs");

/// Scenario, the file of its test, and the test.
const TESTS: &[(&str, &str, &str)] = &[
    ("CSM-1", DOCUMENTS, "scenario_1_thirty_joins_over_28_seconds_make_one_map"),
    ("CSM-2", DOCUMENTS, "scenario_2_two_joins_share_a_window_of_ten_seconds"),
    ("CSM-3", DOCUMENTS, "scenario_3_a_crash_is_redistributed_six_seconds_after_the_last_heartbeat"),
    ("CSM-4", DOCUMENTS, "scenario_4_a_crash_inside_a_window_ends_it_and_one_calculation_covers_both"),
    ("CSM-5", DOCUMENTS, "scenario_5_the_dead_leader_is_version_2_and_the_next_join_version_3"),
    ("CSM-6", DOCUMENTS, "scenario_6_the_window_of_a_cold_start_is_inherited"),
    ("CSM-7", DOCUMENTS, "scenario_7_when_the_same_ids_return_nothing_is_published_and_nothing_moves"),
    ("CSM-M1", DOCUMENTS, "scenario_1_thirty_joins_over_28_seconds_make_one_map"),
    ("CSM-M2", DOCUMENTS, "scenario_2_two_joins_share_a_window_of_ten_seconds"),
    ("CSM-M3", DOCUMENTS, "scenario_3_a_crash_is_redistributed_six_seconds_after_the_last_heartbeat"),
    ("CSM-M4", DOCUMENTS, "scenario_7_with_sixty_of_64_is_one_map_thirty_seconds_after_the_restart"),
    ("CSM-M5", DOCUMENTS, "matrix_a_rolling_update_is_no_planned_scale_where_the_fleet_size_is_set"),
    ("CSM-M6", DOCUMENTS, "matrix_a_partial_failure_of_14_of_64_is_an_emergency"),
    ("CSM-M7", DOCUMENTS, "matrix_a_leadership_transfer_without_a_change_is_steady"),
    ("CSM-M8", DOCUMENTS, "scenario_6_the_window_of_a_cold_start_is_inherited"),
    ("CSM-T1", DOCUMENTS, "integration_a_cold_start_of_three_scales_for_thirty_seconds"),
    ("CSM-T2", DOCUMENTS, "scenario_7_with_sixty_of_64_is_one_map_thirty_seconds_after_the_restart"),
    ("CSM-T3", DOCUMENTS, "integration_a_planned_scale_from_three_to_five_scales_for_ten_seconds"),
    ("CSM-T4", DOCUMENTS, "integration_a_crash_shows_an_emergency_and_then_stable"),
    ("CSM-T5", DOCUMENTS, "matrix_a_leadership_transfer_without_a_change_is_steady"),
    ("CSM-S1", IDENTITY, "a_graceful_shutdown_frees_id_and_lead_within_a_second"),
    ("CI-1", IDENTITY, "ten_workers_that_claim_at_once_get_ten_ids"),
    ("CI-2", CRASH, "a_crash_of_one_moves_its_partitions_only"),
    ("CI-3", CRASH, "a_storm_of_conflicts_delays_a_map_and_loses_none"),
    ("CI-4", MESSAGES, "a_message_is_committed_tried_again_or_dead_lettered"),
    ("CI-L1", IDENTITY, "the_next_leads_within_the_lease_of_a_dead_leader"),
    ("CI-L2", CRASH, "a_leader_cut_off_while_its_lease_expires_is_replaced_and_comes_back_as_a_follower"),
    ("CI-L3", DOCUMENTS, "matrix_a_leadership_transfer_without_a_change_is_steady"),
    ("IP-I1", DOCUMENTS, "integration_a_cold_start_of_three_scales_for_thirty_seconds"),
    ("IP-I2", DOCUMENTS, "integration_a_planned_scale_from_three_to_five_scales_for_ten_seconds"),
    ("IP-I3", DOCUMENTS, "integration_a_crash_shows_an_emergency_and_then_stable"),
    ("IP-I4", DOCUMENTS, "integration_a_restart_of_ten_awaits_them_and_moves_nothing"),
    ("IP-C1", DOCUMENTS, "chaos_rapid_joins_and_leaves_end_in_one_consistent_map"),
    ("IP-C2", DOCUMENTS, "chaos_a_leader_that_leaves_during_scaling_leaves_its_window_to_the_next"),
    ("IP-C3", DOCUMENTS, "chaos_a_worker_that_crashes_during_the_rebalancing_is_not_planned_for_again"),
    ("IP-C4", DOCUMENTS, "chaos_a_partition_during_an_emergency_gives_no_partition_two_owners"),
    ("IP-U1", MACHINES, "the_calculator_machine_is_the_one_designed"),
    ("IP-U2", TRIGGER, "a_restart_ends_without_a_calculation_when_everybody_is_back"),
    ("IP-U3", TRIGGER, "a_planned_window_opens_once_does_not_slide_and_closes_when_the_change_undoes_itself"),
    ("IP-U4", MACHINES, "the_worker_machine_is_the_one_designed"),
    ("IP-U5", MACHINES, "the_worker_machine_is_the_one_designed"),
    ("IP-U6", DOCUMENTS, "integration_a_crash_shows_an_emergency_and_then_stable"),
    ("IP-U7", DOCUMENTS, "integration_a_planned_scale_from_three_to_five_scales_for_ten_seconds"),
    ("IP-U8", DOCUMENTS, "chaos_a_leader_that_leaves_during_scaling_leaves_its_window_to_the_next"),
];

/// Scenarios that are not of the cluster core, and where they are.
const ELSEWHERE: &[(&str, &str)] =
    &[("IP-U9", "a figure, not a test: cargo xtask bench cluster"), ("PF-", "crates/etl")];

#[test]
fn every_test_that_stands_for_a_scenario_is_there() {
    for (id, file, test) in TESTS {
        assert!(file.contains(&format!("fn {test}()")), "{id}: there is no test {test}");
    }
}

#[test]
fn every_scenario_of_the_requirements_has_its_test() {
    let blocks = requirements().split("[[scenario]]").skip(1);
    let ids: Vec<&str> = blocks
        .map(|block| {
            let line = block.lines().find_map(|line| line.strip_prefix("id = ")).expect("an id");
            line.trim().trim_matches('"')
        })
        .collect();
    assert!(ids.len() > 40, "{} scenarios", ids.len());
    for id in ids {
        let tested = TESTS.iter().any(|(known, ..)| *known == id);
        let elsewhere = ELSEWHERE.iter().any(|(prefix, _)| id.starts_with(prefix));
        assert!(tested || elsewhere, "{id} has no test");
    }
}
