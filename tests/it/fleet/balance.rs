//! US4: everybody has a fair share, and no lease moves without need.

use std::time::Instant;

use testkit::process::{INTERVAL, SOON, Scene, field, ms};

/// US4.1, SC-004, FR-013.
#[test]
fn three_instances_hold_three_of_nine_endpoints_each() {
    let scene = Scene::new(9);
    let fleet = scene.fleet(3);
    assert_eq!(scene.counts(&fleet.iter().collect::<Vec<_>>()), [3, 3, 3]);
    let owners = scene.owners();
    scene.target.observe(ms(2_500));
    assert_eq!(scene.owners(), owners, "nothing moves at rest");
    scene.target.assert_sound();
}

/// US4.2, FR-015, G6.
#[test]
fn a_newcomer_to_two_with_ten_endpoints_gets_three_or_four_and_nothing_else_moves() {
    let scene = Scene::new(10);
    let fleet = scene.fleet(2);
    let before = scene.owners();
    let third = scene.join(&[]);
    scene.wait_for_balance(&[&fleet[0], &fleet[1], &third], SOON);
    scene.target.observe(ms(1_500));
    let after = scene.owners();
    let share = scene.owned_by(&third).len();
    assert!((3..=4).contains(&share), "{after:?}");
    let moved: Vec<&String> = before.keys().filter(|it| before[*it] != after[*it]).collect();
    assert!(moved.iter().all(|it| after[*it] == third.id()), "{moved:?} moved: {after:?}");
    scene.target.assert_sound();
}

/// US4.3, FR-014, FR-015, R8.
#[test]
fn what_is_handed_over_is_polled_half_a_second_after_it_was_due_at_the_latest() {
    let scene = Scene::new(6);
    let one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let before = Instant::now();
    let two = scene.join(&[]);
    scene.wait_for_balance(&[&one, &two], SOON);
    let moved = scene.owned_by(&two);
    scene.target.wait_until(SOON, "the heir polls everything twice", |requests| {
        moved.iter().all(|endpoint| {
            let path = format!("/{endpoint}");
            requests.iter().filter(|it| it.path == path && it.instance == two.id()).count() >= 2
        })
    });
    for endpoint in &moved {
        let gap = scene.target.longest_gap(endpoint, before..Instant::now());
        println!("measured: hand-over, gap {gap:?}");
        assert!(gap <= INTERVAL + ms(500), "{endpoint} was not polled for {gap:?}");
        let key = format!("endpoint={endpoint} ");
        let released = one.lines(&["event=lease.released", &key]);
        assert_eq!(field(&released[0], "reason").as_deref(), Some("rebalance"), "{released:?}");
        let acquired = two.lines(&["event=lease.acquired", &key]);
        assert_eq!(field(&acquired[0], "reason").as_deref(), Some("handover"), "{acquired:?}");
    }
    scene.target.assert_sound();
}

/// `--weight`: a share three times as large, and none.
#[test]
fn shares_follow_weights_and_weight_zero_takes_none() {
    let scene = Scene::new(8);
    let heavy = scene.first(&["--weight=3"]);
    let light = scene.join(&[]);
    let none = scene.join(&["--weight=0"]);
    let fleet = [&heavy, &light, &none];
    testkit::process::eventually(
        SOON,
        "6, 2 and 0",
        || format!("{:?}", scene.counts(&fleet)),
        || scene.counts(&fleet) == [6, 2, 0],
    );
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.assert_sound();
}
