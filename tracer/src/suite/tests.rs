//! Findings made by hand.

use super::*;
use crate::report::{CpuByPhase, LimitedBy};
use crate::scenario::{Claim, ClaimMeaning};

/// A row whose rounds took these microseconds of CPU per request.
fn row(server: &str, workload: &str, cpu_us: &[f64]) -> Row {
    let rounds =
        cpu_us.iter().map(|us| Figures { requests_per_s: 1e6 / us, cpu_ns: us * 1000.0 }).collect::<Vec<_>>();
    Row {
        server: server.into(),
        runtime: "node24".into(),
        workload: workload.into(),
        rounds,
        p50_ns: Some(900_000),
        p99_ns: None,
        syscalls_per_request: Some(2.9),
        writes_per_response: 1.0,
        one_write_share: 1.0,
        one_write_calls: vec!["write".into()],
        cpu: CpuByPhase {
            read_ns: 2000.0,
            app_user_ns: cpu_us[0] * 500.0,
            write_ns: 5000.0,
            total_ns: cpu_us[0] * 1000.0,
            ..CpuByPhase::default()
        },
        tracing_ratio: Some(1.1),
        limit: LimitedBy::Server,
        traced_requests: 100,
        failed: 0,
        first_failure: None,
        defects: Vec::new(),
        unreliable: false,
        notes: Vec::new(),
    }
}

fn findings(rows: Vec<Row>) -> Findings {
    Findings { suite: "mine".into(), base: "a".into(), rows, ..Findings::default() }
}

fn ranked(findings: &Findings) -> Vec<Rank> {
    ranks(findings, &findings.rows.iter().collect::<Vec<_>>())
}

#[test]
fn rows_inside_each_others_rounds_share_a_rank() {
    let mut findings = findings(vec![
        row("slow", "hello", &[30.0, 31.0, 32.0]),
        row("a", "hello", &[10.0, 11.0, 12.0]),
        row("b", "hello", &[11.5, 11.9, 13.0]),
        row("c", "hello", &[13.5, 14.0, 14.5]),
    ]);
    let places = |findings: &Findings| ranked(findings);
    assert_eq!(places(&findings), [4, 1, 1, 3].map(Rank::Place));
    // A control that moves by a third leaves less to be told apart.
    findings.control = Some(Control { name: String::new(), moved: Spread::of([-0.3, 0.1]).unwrap() });
    assert_eq!(places(&findings), [4, 1, 1, 1].map(Rank::Place));
}

#[test]
fn ranks_are_within_a_runtime() {
    let mut bun = row("bun", "hello", &[5.0, 5.0, 5.0]);
    bun.runtime = "bun".into();
    let findings = findings(vec![row("a", "hello", &[10.0, 10.0, 10.0]), bun]);
    assert_eq!(ranked(&findings), [Rank::Place(1), Rank::Place(1)]);
}

#[test]
fn who_cannot_be_compared_has_no_rank_and_leaves_no_gap() {
    let with = |server: &str, change: &dyn Fn(&mut Row)| {
        let mut row = row(server, "hello", &[10.0, 10.0, 10.0]);
        change(&mut row);
        row
    };
    let mut findings = findings(vec![
        with("client", &|row| row.limit = LimitedBy::Client),
        with("idle", &|row| row.limit = LimitedBy::Neither),
        with("failed", &|row| row.failed = 1),
        with("defect", &|row| row.defects.push("so".into())),
        with("short", &|row| row.rounds.truncate(2)),
        with("other", &|_| ()),
        row("a", "hello", &[20.0, 20.0, 20.0]),
    ]);
    findings.differences.push(Difference {
        server: "other".into(),
        workload: "hello".into(),
        what: "etag".into(),
        wanted: "absent".into(),
        got: "present".into(),
    });
    let reasons = [
        "the client was the limit",
        "the server was not the limit",
        "requests failed",
        "the measurement has a defect",
        "too few rounds",
        "unequal work",
    ];
    let ranks = ranked(&findings);
    assert_eq!(ranks[..6], reasons.map(Rank::None));
    assert_eq!(ranks[6], Rank::Place(1));
    assert!(findings.is_broken() && findings.lacks_evidence());
    findings.quick = true;
    assert!(ranked(&findings).iter().all(|rank| matches!(rank, Rank::None(_))));
}

fn claim(findings: &Findings, means: ClaimMeaning) -> ClaimSeen {
    claims::seen(&Claim { says: "so".into(), means }, findings)
}

fn name(server: &str, workload: &str) -> RowName {
    RowName { server: server.into(), workload: workload.into() }
}

#[test]
fn a_claim_holds_when_every_round_says_so() {
    let findings = findings(vec![
        row("a", "hello", &[10.0, 20.0, 30.0]),
        row("b", "hello", &[11.0, 21.0, 31.0]),
        row("c", "hello", &[9.0, 21.0, 31.0]),
    ]);
    let held =
        |more, less| claim(&findings, ClaimMeaning::CostsMore(name(more, "hello"), name(less, "hello"))).held;
    // The rounds are paired: what all rows share in a round is no difference.
    assert_eq!(held("b", "a"), Held::Yes);
    assert_eq!(held("a", "b"), Held::No);
    assert_eq!(held("c", "a"), Held::NotResolved);
    assert_eq!(held("c", "nobody"), Held::NotMeasured);
    let seen = claim(&findings, ClaimMeaning::CostsMore(name("b", "hello"), name("a", "hello"))).seen;
    assert_eq!(seen, "b hello over a hello: +1.00 us (+1.00 .. +1.00, 3 rounds)");
}

#[test]
fn one_round_decides_no_claim() {
    let findings = findings(vec![row("a", "hello", &[10.0]), row("b", "hello", &[20.0])]);
    let seen = claim(&findings, ClaimMeaning::CostsMore(name("b", "hello"), name("a", "hello")));
    assert_eq!(seen.held, Held::NotResolved);
}

#[test]
fn growth_is_told_over_the_same_servers_other_workload() {
    let findings = findings(vec![
        row("a", "hello", &[10.0, 10.0, 10.0]),
        row("a", "mw", &[30.0, 31.0, 32.0]),
        row("b", "hello", &[40.0, 40.0, 40.0]),
        row("b", "mw", &[45.0, 45.0, 45.0]),
    ]);
    let grows = |server: &str| {
        let (server, workload, over) = (server.into(), "mw".into(), "hello".into());
        claim(&findings, ClaimMeaning::GrowsMost { server, workload, over })
    };
    assert_eq!((grows("a").held, grows("b").held), (Held::Yes, Held::No));
    assert!(grows("a").seen.ends_with("that is over b's by +16.0 us (+15.0 .. +17.0, 3 rounds)"));
}

#[test]
fn one_write_is_every_response() {
    let mut rows = vec![row("a", "hello", &[10.0])];
    assert_eq!(claim(&findings(rows.clone()), ClaimMeaning::OneWrite(name("a", "hello"))).held, Held::Yes);
    rows[0].one_write_share = 0.999_99;
    let seen = claim(&findings(rows), ClaimMeaning::OneWrite(name("a", "hello")));
    assert_eq!(seen.held, Held::No);
    assert!(seen.seen.contains(">99.9 % of the responses"), "{}", seen.seen);
}

#[test]
fn what_is_stored_prints_the_same() {
    let mut findings = findings(vec![
        row("a", "hello", &[10.0, 10.5, 11.0]),
        row("hono-patched", "hello", &[123.4, 133.3, 222.2]),
        row("a", "mw", &[15.0, 15.5, 16.0]),
    ]);
    findings.control = Some(Control { name: "a hello".into(), moved: Spread::of([-0.01, 0.002]).unwrap() });
    let stored = serde_json::to_string(&findings).unwrap();
    let again: Findings = serde_json::from_str(&stored).unwrap();
    let printed = text(&findings);
    assert_eq!(printed, text(&again));
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    insta::assert_snapshot!(printed);
}

#[test]
fn the_other_parts_fit_the_page_and_say_what_they_cannot() {
    let spread = |value: f64| Spread::of([value * 0.9, value, value * 1.1]);
    let growth = |target: &str, added: &[f64]| RouterGrowth {
        server: "express".into(),
        target: target.into(),
        routes: 2000,
        added_ns: crate::stats::paired::Interval::of(added, 0.025),
        failed: 0,
    };
    let phase = LeakPhase { requests: 100_000, rss_bytes: 99_000_000, heap_bytes: None, handles: None };
    let mut findings = findings(Vec::new());
    findings.router_control = Some("express".into());
    findings.router = vec![
        growth("last", &[90e3, 95e3, 99e3, 91e3, 92e3, 93e3]),
        growth("miss", &[-300.0, 400.0, 100.0, -200.0, 250.0, 10.0]),
        growth("params", &[100.0]),
    ];
    findings.memory = vec![Memory {
        server: "express".into(),
        idle_bytes: spread(65e6),
        loaded_bytes: spread(88e6),
        peak_bytes: spread(90e6),
        requests: 5000,
        connections: 8,
        route_bytes: None,
    }];
    findings.starts = vec![ColdStart {
        server: "hono-patched".into(),
        listen_ns: spread(1234e6),
        answer_ns: spread(1254e6),
        cpu_ns: spread(400e6),
        run_queue_ns: spread(500e6),
        minor_faults: spread(12_345.0),
        major_faults: spread(0.0),
        file_calls: vec![
            ("openat".into(), 241),
            ("read".into(), 308),
            ("statx".into(), 963),
            ("mmap".into(), 1),
        ],
        curve_ns: vec![90e3, 60e3, 31e3, 30e3, 30e3],
        slice_requests: 100,
    }];
    findings.leaks = vec![LeakCheck { server: "express".into(), phases: vec![phase; 4], failed: 0 }];
    let printed = text(&findings);
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    let stored: Findings = serde_json::from_str(&serde_json::to_string(&findings).unwrap()).unwrap();
    assert_eq!(printed, text(&stored));
    insta::assert_snapshot!(printed);
    // A control that does not grow takes the sense from everything that is not resolved.
    findings.router.remove(0);
    assert!(text(&findings).contains("NOT SEEN"));
}
