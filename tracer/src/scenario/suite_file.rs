//! The `[suite]` table: its shape, and the step to the checked model.

use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::source::Source;
use super::suite::{Claim, ClaimMeaning, Leak, Memory, Router, RowName, Start, Suite};
use super::values::parse_duration;
use super::{Request, Server};

/// Fresh starts for a figure with an interval: fewer support none at 95 %.
const LAUNCHES_FOR_AN_INTERVAL: u32 = 6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteTable {
    base: Spanned<String>,
    control: Spanned<String>,
    quick: Vec<Spanned<String>>,
    router: Option<RouterTable>,
    memory: Option<MemoryTable>,
    start: Option<StartTable>,
    leak: Option<LeakTable>,
    #[serde(default)]
    claim: Vec<ClaimTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouterTable {
    sizes: Vec<u32>,
    control: Spanned<String>,
    launches: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryTable {
    requests: u64,
    connections: Spanned<u32>,
    launches: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartTable {
    launches: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeakTable {
    phase: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimTable {
    says: Spanned<String>,
    costs_more: Option<[Spanned<String>; 2]>,
    grows_most: Option<[Spanned<String>; 3]>,
    one_write: Option<Spanned<String>>,
}

/// The names a suite may speak of.
struct Known<'a> {
    source: &'a Source,
    requests: &'a [Request],
    servers: &'a [Server],
}

impl SuiteTable {
    pub(super) fn checked(self, source: &Source, requests: &[Request], servers: &[Server]) -> Result<Suite> {
        let known = Known { source, requests, servers };
        Ok(Suite {
            base: known.server(self.base)?,
            control: known.row(self.control)?,
            quick: self.quick.into_iter().map(|name| known.row(name)).collect::<Result<_>>()?,
            router: self.router.map(|table| known.router(table)).transpose()?,
            memory: self.memory.map(|table| known.memory(table)).transpose()?,
            start: self
                .start
                .map(|table| known.launches(table.launches, 1).map(|launches| Start { launches }))
                .transpose()?,
            leak: self.leak.map(|table| known.phase(&table.phase).map(|phase| Leak { phase })).transpose()?,
            claims: self.claim.into_iter().map(|table| known.claim(table)).collect::<Result<_>>()?,
        })
    }
}

impl Known<'_> {
    fn server(&self, name: Spanned<String>) -> Result<String> {
        self.one_of(name, "server", self.servers.iter().map(|server| server.name.as_str()))
    }

    fn workload(&self, name: Spanned<String>) -> Result<String> {
        self.one_of(name, "request", self.requests.iter().map(|request| request.name.as_str()))
    }

    fn one_of<'n>(
        &self,
        name: Spanned<String>,
        kind: &str,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<String> {
        let names: Vec<_> = names.collect();
        if names.contains(&name.get_ref().as_str()) {
            return Ok(name.into_inner());
        }
        let (wrong, known) = (name.get_ref(), names.join(", "));
        Err(self.source.error(&name.span(), format_args!("there is no {kind} `{wrong}`; there are {known}")))
    }

    /// `SERVER WORKLOAD`; either may hold blanks.
    fn row(&self, name: Spanned<String>) -> Result<RowName> {
        for server in self.servers {
            let rest = name.get_ref().strip_prefix(&server.name).and_then(|rest| rest.strip_prefix(' '));
            if let Some(request) = rest.and_then(|rest| self.requests.iter().find(|r| r.name == rest)) {
                return Ok(RowName { server: server.name.clone(), workload: request.name.clone() });
            }
        }
        let wrong = name.get_ref();
        Err(self.source.error(
            &name.span(),
            format_args!("`{wrong}` is no row; name a server and a request, as in \"express hello\""),
        ))
    }

    fn router(&self, table: RouterTable) -> Result<Router> {
        Ok(Router {
            sizes: table.sizes,
            control: self.server(table.control)?,
            launches: match table.launches {
                Some(launches) => self.launches(launches, LAUNCHES_FOR_AN_INTERVAL)?,
                None => LAUNCHES_FOR_AN_INTERVAL,
            },
        })
    }

    fn memory(&self, table: MemoryTable) -> Result<Memory> {
        let launches = self.launches(table.launches, 1)?;
        let connections = self.launches(table.connections, 1)?;
        Ok(Memory { requests: table.requests, connections, launches })
    }

    fn launches(&self, count: Spanned<u32>, least: u32) -> Result<u32> {
        if *count.get_ref() < least {
            return Err(self.source.error(
                &count.span(),
                format_args!("{} is too few; give at least {least}", count.get_ref()),
            ));
        }
        Ok(count.into_inner())
    }

    fn phase(&self, text: &Spanned<String>) -> Result<Duration> {
        parse_duration(text.get_ref()).map_err(|sentence| self.source.error(&text.span(), sentence))
    }

    fn claim(&self, table: ClaimTable) -> Result<Claim> {
        let means = match (table.costs_more, table.grows_most, table.one_write) {
            (Some([more, less]), None, None) => ClaimMeaning::CostsMore(self.row(more)?, self.row(less)?),
            (None, Some([server, workload, over]), None) => ClaimMeaning::GrowsMost {
                server: self.server(server)?,
                workload: self.workload(workload)?,
                over: self.workload(over)?,
            },
            (None, None, Some(row)) => ClaimMeaning::OneWrite(self.row(row)?),
            _ => {
                let fix = "give it one of `costs_more`, `grows_most` and `one_write`";
                return Err(self.source.error(
                    &table.says.span(),
                    format_args!("the claim does not say what it means in figures; {fix}"),
                ));
            }
        };
        Ok(Claim { says: table.says.into_inner(), means })
    }
}
