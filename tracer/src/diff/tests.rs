use super::{
    fixture::{Build, comparison},
    *,
};
use crate::stats::paired::{Rule, Verdict};

fn judged(comparison: &Comparison) -> Judgement {
    judge(comparison, Rule::default(), &[])
}

#[test]
fn an_added_write_is_a_regression_and_named_first() {
    let judgement = judged(&comparison(&Build::plain(), &Build::two_writes(), 8));
    assert_eq!((judgement.exit_code(), &judgement.verdict), (1, &Verdict::Regression));
    insta::assert_snapshot!("added_write_text", text(&judgement));
    insta::assert_snapshot!("added_write_markdown", markdown(&judgement));
}

#[test]
fn both_ledgers_add_up_to_the_untraced_difference() {
    let judgement = judged(&comparison(&Build::plain(), &Build::two_writes(), 8));
    for ledger in [&judgement.routes[0].cpu_ledger, &judgement.routes[0].latency_ledger] {
        let lines: f64 = ledger.lines.iter().map(|line| line.difference.estimate).sum();
        let total = ledger.total.unwrap().estimate;
        assert!((lines + ledger.unexplained.unwrap().estimate - total).abs() < 1e-6);
        assert!(ledger.lines.iter().all(|line| line.difference.interval.is_some()));
    }
}

#[test]
fn identical_builds_are_the_same() {
    let judgement = judged(&comparison(&Build::plain(), &Build::plain(), 8));
    assert_eq!((judgement.exit_code(), &judgement.verdict), (0, &Verdict::Same), "{}", judgement.answer);
    let route = &judgement.routes[0];
    assert!(route.kinds.is_empty() && route.counts.is_empty());
    assert!(route.ruled_out.contains(&"writes 1.00 -> 1.00".to_owned()), "{:?}", route.ruled_out);
}

#[test]
fn a_cheaper_build_is_improved() {
    let judgement = judged(&comparison(&Build::two_writes(), &Build::plain(), 8));
    assert_eq!((judgement.exit_code(), &judgement.verdict), (0, &Verdict::Improved));
}

#[test]
fn another_threshold_gives_another_verdict_on_the_same_launches() {
    let measured = comparison(&Build::plain(), &Build::two_writes(), 14);
    let lax = judge(&measured, Rule { threshold: 0.20, strict: false }, &[]);
    assert_eq!(lax.verdict, Verdict::Same);
    assert_eq!(judged(&measured).verdict, Verdict::Regression);
}

#[test]
fn a_rate_that_was_not_reached_is_no_equal_load() {
    let mut paced = comparison(&Build::plain(), &Build::two_writes(), 8);
    paced.design.rate_per_s = Some(160_000.0);
    let mut due = |side: Side, share: f64| {
        let slices = paced.launches.iter_mut().flat_map(|launch| &mut launch.routes[0].slices);
        for slice in slices.filter(|slice| slice.side == side) {
            slice.due = Some((slice.requests as f64 / share) as u64);
        }
    };
    Side::ALL.into_iter().for_each(|side| due(side, 1.0));
    due(Side::B, 0.9);
    let judgement = judged(&paced);
    assert_eq!(judgement.exit_code(), 3);
    let told = "of 160,000 requests/s A answered 100.0 % and B 90.0 %";
    assert!(judgement.answer.contains(told), "{}", judgement.answer);
}

#[test]
fn few_launches_give_no_interval_and_no_verdict() {
    let judgement = judged(&comparison(&Build::plain(), &Build::two_writes(), 7));
    assert_eq!(judgement.exit_code(), 3);
    assert!(judgement.answer.contains("too few launches: 7"), "{}", judgement.answer);
    assert_eq!(judgement.routes[0].cpu.difference.unwrap().interval, None);
}

fn withheld(change: impl Fn(&mut Comparison)) -> String {
    let mut measured = comparison(&Build::plain(), &Build::two_writes(), 8);
    change(&mut measured);
    let judgement = judged(&measured);
    assert_eq!(judgement.exit_code(), 3);
    let Verdict::Withheld { reasons } = judgement.verdict else { panic!("{:?}", judgement.verdict) };
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons[0].clone()
}

fn slices(comparison: &mut Comparison) -> impl Iterator<Item = &mut Slice> {
    comparison.launches.iter_mut().flat_map(|launch| &mut launch.routes).flat_map(|route| &mut route.slices)
}

#[test]
fn each_limit_withholds_with_its_reason() {
    let control = withheld(|measured| {
        slices(measured)
            .filter(|s| s.side == Side::Control)
            .for_each(|s| s.server_cpu_ns += s.server_cpu_ns / 10);
    });
    assert!(control.contains("A differed from A by"), "{control}");
    let client =
        withheld(|measured| slices(measured).for_each(|slice| slice.client_cpu_ns = slice.elapsed_ns));
    assert!(client.contains("load driver was the limit"), "{client}");
    let work = withheld(|measured| measured.routes[0].unequal_work = "A says 3 bytes, B 4".into());
    assert!(work.contains("unequal work: A says 3 bytes, B 4"), "{work}");
    let early = withheld(|measured| measured.ended_early = "interrupted".into());
    assert!(early.contains("interrupted"), "{early}");
    fn traced(measured: &mut Comparison) -> impl Iterator<Item = &mut Figures> {
        let routes = measured.launches.iter_mut().flat_map(|launch| &mut launch.routes);
        routes.flat_map(|route| route.traced.as_mut().unwrap())
    }
    let lost = withheld(|measured| traced(measured).for_each(|figures| figures.loss_share = 0.01));
    assert!(lost.contains("were lost"), "{lost}");
    let perturbed = withheld(|measured| {
        traced(measured).for_each(|figures| *figures.cpu_ns.get_mut("app: user").unwrap() *= 5.0);
    });
    assert!(perturbed.contains("times as dear"), "{perturbed}");
    let unsound =
        withheld(|measured| traced(measured).for_each(|figures| figures.left_out.push("closure".into())));
    assert!(unsound.contains("traced slices were not sound"), "{unsound}");
}

#[test]
fn several_routes_are_corrected_and_the_worst_is_told() {
    let mut measured = comparison(&Build::plain(), &Build::plain(), 14);
    let dear = comparison(&Build::plain(), &Build::two_writes(), 14);
    measured.routes.push(Route { name: "GET /dear".into(), unequal_work: String::new() });
    for (launch, dear) in measured.launches.iter_mut().zip(dear.launches) {
        launch.routes.extend(dear.routes);
    }
    let judgement = judged(&measured);
    assert_eq!(judgement.verdict, Verdict::Regression);
    assert!(
        judgement.answer.starts_with("REGRESSION in 1 of 2 routes; most in GET /dear: B costs"),
        "{}",
        judgement.answer
    );
    // At the first look, half of its level is less than eight launches can show.
    measured.launches.truncate(8);
    measured.looks = vec![8];
    assert!(matches!(judged(&measured).verdict, Verdict::Inconclusive { .. }));
}

#[test]
fn latency_gates_only_when_asked() {
    let slower = Build { latency_ns: 900_000, ..Build::plain() };
    let measured = comparison(&Build::plain(), &slower, 14);
    let judgement = judged(&measured);
    assert_eq!(judgement.verdict, Verdict::Same);
    assert!(judgement.answer.contains("a request takes +399.4 us"), "{}", judgement.answer);
    let gated = judge(&measured, Rule::default(), &[Metric::P50]);
    assert_eq!(gated.verdict, Verdict::Regression);
}

#[test]
fn a_stored_comparison_is_judged_like_the_fresh_one() {
    let folder = tempfile::tempdir().unwrap();
    let measured = comparison(&Build::plain(), &Build::two_writes(), 8);
    save(&measured, folder.path()).unwrap();
    save(&measured, folder.path()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let again = load(folder.path()).unwrap();
    assert_eq!(again.launches.len(), measured.launches.len());
    assert_eq!(text(&judged(&again)), text(&judged(&measured)));
    std::fs::write(folder.path().join(COMPARISON_FILE), "{\"schema_version\": 99}").unwrap();
    assert!(load(folder.path()).unwrap_err().to_string().contains("format version 99"));
}
