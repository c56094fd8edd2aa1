//! `tracer diff`

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use super::{Status, TraceArguments, print, sending::rate};
use crate::{
    diff::{self, COMPARISON_FILE, Comparison, Design, Gathering, Judgement, Metric, Origin, Recorded},
    preflight::elevate,
    recording::disk::{self, Recording},
    scenario::{DEFAULT_CONNECTIONS, parse_duration},
    session::{
        diff::{Contenders, Options, begin, extend},
        progress::Progress,
    },
    stats::{Summary, paired::Rule},
    target::user::give_to_user,
};

/// Options of `diff`.
#[derive(Args)]
pub struct Arguments {
    /// Two command lines, each told its port in PORT and {port}; or two recording folders; or the folder of a stored
    /// comparison, to judge it again; or, with --servers, a scenario file
    #[arg(value_name = "A B", num_args = 1..=2, required = true)]
    subjects: Vec<String>,
    /// What both are asked, with {port} where the port stands; may be given several times
    #[arg(long = "url", value_name = "URL", conflicts_with = "servers")]
    urls: Vec<String>,
    /// Two servers of the scenario file
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    servers: Vec<String>,
    /// Only these requests of the scenario
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "servers")]
    only: Vec<String>,
    /// Smallest change that counts, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = percent)]
    threshold: f64,
    /// A change counts only when its whole interval lies beyond the threshold
    #[arg(long)]
    strict: bool,
    /// Metrics that decide beside CPU per request
    #[arg(long, value_enum, value_name = "METRIC", value_delimiter = ',')]
    gate: Vec<Metric>,
    /// Begin no launch that would probably end later than this
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_time: Option<Duration>,
    /// Keep-alive connections (32, or the scenario's)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    connections: Option<u32>,
    /// Requests per second to each side, at a constant rate; without it each answers as many as it can, and a change of
    /// latency changes the load
    #[arg(short, long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Length of a slice
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_duration)]
    slice: Duration,
    /// Load on each server before its first slice of a launch
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    warm_up: Duration,
    /// Folder to store the comparison in
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Add launches to the stored comparison, to its next look
    #[arg(long)]
    extend: bool,
    /// How the verdict is printed
    #[arg(long, value_enum, default_value_t)]
    format: DiffFormat,
    #[command(flatten)]
    trace: TraceArguments,
}

/// How a comparison is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// Tables that fit 100 columns
    #[default]
    Text,
    /// One JSON object
    Json,
    /// For a pull request
    Markdown,
}

/// `2%`, `2 %` or `2`: all of them are 0.02.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err("a number of per cent between 0 and 100, such as 2%".into()),
    }
}

/// Untraced slices of each side in a launch.
const SLICES: u32 = 8;
/// Traced slices of A and of B in a launch.
const TRACED_SLICES: u32 = 2;

/// Runs `diff`.
pub fn run(arguments: &Arguments) -> Result<Status> {
    let judgement = match arguments.subjects.as_slice() {
        [scenario] if !arguments.servers.is_empty() => arguments.live(arguments.scenario(scenario)?)?,
        [folder] if Path::new(folder).join(COMPARISON_FILE).is_file() => {
            arguments.stored(Path::new(folder))?
        }
        [one] => bail!(
            "what shall {one} be compared with? give two commands with --url, two recordings, --servers A,B with a \
             scenario file, or a folder that `tracer diff -o` wrote"
        ),
        _ if !arguments.servers.is_empty() => {
            bail!("--servers names two servers of one scenario file; give that file alone")
        }
        [a, b] => match (is_recording(a), is_recording(b)) {
            (true, true) => arguments.recordings(a, b)?,
            (false, false) => arguments
                .live(Origin::Commands { commands: [a.clone(), b.clone()], urls: arguments.urls.clone() })?,
            _ => bail!("one of {a} and {b} is a recording and the other a command; give two of a kind"),
        },
        _ => unreachable!("clap takes one or two"),
    };
    print(&match arguments.format {
        DiffFormat::Text => diff::text(&judgement),
        DiffFormat::Json => diff::json(&judgement),
        DiffFormat::Markdown => diff::markdown(&judgement),
    })?;
    Ok(match judgement.exit_code() {
        0 => Status::Held,
        1 => Status::Broken,
        _ => Status::NoVerdict,
    })
}

/// It is a recording, or a folder of recordings.
fn is_recording(path: &str) -> bool {
    Path::new(path).is_dir()
}

/// The recordings in a folder, in the order of their names; the folder itself when it is one.
fn recordings_in(folder: &str) -> Result<Vec<Recorded>> {
    let is_one = |path: &Path| path.join("run.json").is_file();
    let mut paths = vec![PathBuf::from(folder)];
    if !is_one(&paths[0]) {
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {folder}"))?;
        paths = entries.flatten().map(|entry| entry.path()).filter(|path| is_one(path)).collect();
        paths.sort();
    }
    ensure!(
        !paths.is_empty(),
        "{folder} is no recording, and holds none; give what `tracer record -o` wrote"
    );
    paths.iter().map(|path| recorded(path)).collect()
}

/// Reads a recording twice: what is slow is known only after the first time.
fn recorded(path: &Path) -> Result<Recorded> {
    let Recording { run, requests } = disk::open(path)?;
    let mut summary = Summary::new();
    for request in requests {
        summary.add(&request?);
    }
    let slowest_from_ns = summary.wall.percentiles().p99_ns.unwrap_or(u64::MAX);
    let mut gathering = Gathering::new(slowest_from_ns);
    for request in disk::open(path)?.requests {
        gathering.add(&request?);
    }
    let mut figures = gathering.finish(&run);
    figures.left_out = summary.invariants.violated(&run);
    Ok(Recorded {
        folder: path.display().to_string(),
        figures,
        routes: summary.routes.keys().map(|(method, path)| format!("{method} {path}")).collect(),
        statuses: summary.statuses.keys().copied().collect(),
        run,
    })
}

impl Arguments {
    fn recordings(&self, a: &str, b: &str) -> Result<Judgement> {
        ensure!(
            self.urls.is_empty() && !self.says_load(),
            "recordings hold their load; leave out --url, --connections and --rate"
        );
        ensure!(
            self.output.is_none() && !self.extend,
            "recordings are stored already; leave out -o and --extend"
        );
        let folders = [a.to_owned(), b.to_owned()];
        let comparison = diff::of_recordings(folders, &recordings_in(a)?, &recordings_in(b)?)?;
        Ok(diff::judge(&comparison, self.rule(), &self.gate))
    }

    /// What is a matter of the launches was given.
    fn says_load(&self) -> bool {
        self.connections.is_some() || self.rate.is_some()
    }

    fn rule(&self) -> Rule {
        Rule { threshold: self.threshold, strict: self.strict }
    }

    fn scenario(&self, path: &str) -> Result<Origin> {
        let [a, b] = self.servers.as_slice() else {
            bail!("--servers takes two names, such as --servers express,fastify");
        };
        Ok(Origin::Scenario {
            path: path.to_owned(),
            servers: [a.clone(), b.clone()],
            requests: self.only.clone(),
        })
    }

    fn live(&self, origin: Origin) -> Result<Judgement> {
        ensure!(!self.extend, "--extend adds to a stored comparison; give its folder");
        if let Some(folder) = self.output.as_deref().filter(|folder| folder.join(COMPARISON_FILE).exists()) {
            bail!(
                "{} holds a comparison already; give it alone with --extend, or choose another place with -o",
                folder.display()
            );
        }
        let contenders = Contenders::of(&origin)?;
        let design = Design {
            connections: self.connections.or(contenders.connections).unwrap_or(DEFAULT_CONNECTIONS),
            rate_per_s: self.rate,
            slice_ns: self.slice.as_nanos() as u64,
            slices: SLICES,
            traced_slices: TRACED_SLICES,
            warm_up_ns: self.warm_up.as_nanos() as u64,
        };
        let comparison = begin(origin, design, &contenders);
        self.measure(comparison, &contenders, self.output.as_deref())
    }

    fn stored(&self, folder: &Path) -> Result<Judgement> {
        let comparison = diff::load(folder)?;
        ensure!(
            self.urls.is_empty() && !self.says_load(),
            "{} holds its load; leave out --url, --connections and --rate, or start a new comparison",
            folder.display()
        );
        if self.extend {
            let contenders = Contenders::of(&comparison.origin)?;
            return self.measure(comparison, &contenders, Some(self.output.as_deref().unwrap_or(folder)));
        }
        if let Some(output) = &self.output {
            bail!("nothing new is measured to store in {}; leave out -o, or add --extend", output.display());
        }
        Ok(diff::judge(&comparison, self.rule(), &self.gate))
    }

    fn measure(
        &self,
        mut comparison: Comparison,
        contenders: &Contenders,
        output: Option<&Path>,
    ) -> Result<Judgement> {
        elevate::ensure()?;
        let progress = Progress::new();
        let options = Options {
            probes: self.trace.probes(),
            rule: self.rule(),
            gates: &self.gate,
            max_time: self.max_time,
        };
        extend(&mut comparison, contenders, &options, &progress)?;
        drop(progress);
        if let Some(folder) = output {
            diff::save(&comparison, folder)?;
            give_to_user(folder)?;
            eprintln!("tracer: comparison written to {}", folder.display());
        }
        Ok(diff::judge(&comparison, self.rule(), &self.gate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_per_cent() {
        assert_eq!([percent("2%"), percent("2 %"), percent("2")], [Ok(0.02), Ok(0.02), Ok(0.02)]);
        for wrong in ["0", "100", "x%", "-1", "NaN"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
