//! Servers under workloads. One round of a row: a fresh process, a warm-up, a round without probes, a round with them.

use anyhow::{Context, Result};

use super::Session;
use crate::{
    load::Stop,
    recording::{Round, Run},
    report,
    scenario::{Length, Request, RowName, Server},
    session::{Gather, bench::totals_of, interrupt, launch::Launch, new_run, put_traced},
    stats::Spread,
    suite::{Control, Figures, Findings, Row},
    window::Traced,
};

/// Rounds whose CPU per request spreads over more than this share of its median ask for more rounds.
const SPREAD: f64 = 0.10;
/// So many more.
const MORE_ROUNDS: u32 = 2;

/// Measures the rows, the control row twice, and puts them into the findings.
pub(super) fn measure(session: &Session, wanted: &[RowName], findings: &mut Findings) -> Result<()> {
    let is_equal = |row: &RowName| findings.is_equal_work(&row.server, &row.workload);
    // What answers wrongly would only fail: the comparison has said how.
    let mut cells: Vec<Cell> =
        wanted.iter().filter(|row| is_equal(row)).filter_map(|row| Cell::of(session, row)).collect();
    let control =
        cells.iter().position(|cell| session.suite.control.is(&cell.server.name, &cell.request.name));
    if let Some(control) = control {
        let again = Cell::new(session, cells[control].server, cells[control].request);
        cells.push(again);
    } else {
        let row = &session.suite.control;
        findings.notes.push(format!("there is no control: its row, {row}, is not among those measured"));
    }
    let rounds = if session.options.quick { 1 } else { session.scenario.rounds };
    let mut random = fastrand::Rng::with_seed(session.options.seed);
    for round in 1..=rounds + MORE_ROUNDS {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        if round > rounds {
            order.retain(|&index| !session.options.quick && cells[index].spreads());
        }
        random.shuffle(&mut order);
        for (place, &index) in order.iter().enumerate() {
            if interrupt::requested() {
                break;
            }
            let cell = &mut cells[index];
            session.say(format_args!(
                "round {round}, row {} of {}: {} {}",
                place + 1,
                order.len(),
                cell.server.name,
                cell.request.name
            ));
            cell.round(session).with_context(|| format!("{} {}", cell.server.name, cell.request.name))?;
        }
    }
    let mut rows: Vec<Row> =
        cells.into_iter().filter(|cell| !cell.run.rounds.is_empty()).map(Cell::row).collect();
    let again = control.filter(|control| *control + 1 < rows.len()).and_then(|_| rows.pop());
    findings.control = control.zip(again).and_then(|(control, again)| moved(&rows[control], &again));
    findings.rows = rows;
    Ok(())
}

/// What the control row took more the second time, round by round.
fn moved(first: &Row, again: &Row) -> Option<Control> {
    let pairs = first.rounds.iter().zip(&again.rounds);
    let moved = Spread::of(pairs.map(|(first, again)| again.cpu_ns / first.cpu_ns - 1.0))?;
    Some(Control { name: format!("{} {}", first.server, first.workload), moved })
}

/// A row while it is measured.
struct Cell<'a> {
    server: &'a Server,
    request: &'a Request,
    run: Run,
    gather: Gather,
    traced: Option<Traced>,
}

impl<'a> Cell<'a> {
    fn of(session: &Session<'a>, row: &RowName) -> Option<Self> {
        let server = session.scenario.servers.iter().find(|server| server.name == row.server)?;
        let request = session.scenario.requests.iter().find(|request| request.name == row.workload)?;
        Some(Self::new(session, server, request))
    }

    fn new(session: &Session, server: &'a Server, request: &'a Request) -> Self {
        let mut run = new_run(&server.name, &request.name, session.options.tracing.keeps_query);
        let as_u32 = |cpus: &[usize]| cpus.iter().map(|&cpu| cpu as u32).collect();
        run.server_cpus = as_u32(&session.placement.server);
        run.client_cpus = as_u32(&session.placement.client);
        Self { server, request, run, gather: Gather::default(), traced: None }
    }

    fn failed(&self) -> bool {
        self.run.rounds.iter().any(|round| round.load.errors > 0)
    }

    fn untraced(&self) -> impl Iterator<Item = &Round> {
        self.run.rounds.iter().filter(|round| !round.traced && round.load.requests > 0)
    }

    /// Its rounds differ by so much that more of them are wanted.
    fn spreads(&self) -> bool {
        Spread::of(self.untraced().map(Round::server_cpu_per_request_ns))
            .is_some_and(|spread| spread.max - spread.min > SPREAD * spread.median)
    }

    /// One round more. A row that has failed is not measured any further.
    fn round(&mut self, session: &Session) -> Result<()> {
        if self.failed() {
            return Ok(());
        }
        let mut launch = Launch::start(session.scenario, self.server, session.placement)?;
        let mut driver = launch.driver(self.request, session.scenario.connections)?;
        let warm_up = driver.run(Stop::Count(self.server.warm_up_requests))?;
        if warm_up.totals.errors > 0 {
            self.run.rounds.push(Round { load: warm_up.totals, ..Round::default() });
            return Ok(());
        }
        let stop = match session.scenario.length {
            Length::Requests(count) => Stop::Count(count),
            Length::Duration(duration) => Stop::After(duration),
        };
        let untraced = launch.untraced(&mut driver, stop)?;
        let is_cut_short = interrupt::requested();
        if is_cut_short {
            return Ok(());
        }
        self.run.rounds.push(untraced);
        if !self.failed() {
            let (round, window) =
                launch.traced(&mut driver, stop, &session.options.tracing, &mut self.gather)?;
            self.run.rounds.push(round);
            match &mut self.traced {
                Some(all) => all.merge(window),
                None => self.traced = Some(window),
            }
        }
        if let Some(status) = launch.target.exit_status() {
            let tail = launch.target.log_tail();
            self.run.notes.push(format!("the server ended by itself ({status}): {tail}"));
        }
        Ok(())
    }

    fn row(mut self) -> Row {
        let figures = self.untraced().map(|round| Figures {
            requests_per_s: round.load.rate(),
            cpu_ns: round.server_cpu_per_request_ns(),
        });
        let figures = figures.collect();
        put_traced(&mut self.run, self.traced.unwrap_or_default());
        let connections = self.run.rounds.first().map_or(0, |round| round.load.connections);
        self.run.load = Some(totals_of(&self.run.rounds, connections));
        Row::of(report::row(&self.run, &self.gather.summary, None), &self.server.runtime, figures)
    }
}
