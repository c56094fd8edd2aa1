//! Whom to compare, from what the command line or a stored comparison names.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::{
    diff::Origin,
    load::Url,
    scenario::{DEFAULT_TIMEOUT, Expect, Request, Scenario, Server},
};

/// Stands for the port in URLs and commands.
const PORT: &str = "{port}";

/// Two servers and what both are asked.
#[derive(Clone, Debug)]
pub struct Contenders {
    /// A and B.
    pub servers: [Server; 2],
    /// What they are asked, in order.
    pub workloads: Vec<Request>,
    /// Longest wait for one response.
    pub timeout: Duration,
    /// Keep-alive connections the scenario asks for.
    pub connections: Option<u32>,
}

impl Contenders {
    /// Finds them; each mistake is one sentence.
    pub fn of(origin: &Origin) -> Result<Self> {
        match origin {
            Origin::Commands { commands, urls } => Self::of_commands(commands, urls),
            Origin::Scenario { path, servers, requests } => Self::of_scenario(path, servers, requests),
            Origin::Recordings { .. } => {
                bail!("recordings cannot be extended: nothing says how to start their servers")
            }
        }
    }

    fn of_commands(commands: &[String; 2], urls: &[String]) -> Result<Self> {
        ensure!(!urls.is_empty(), "what shall they be asked? give --url 'http://127.0.0.1:{PORT}/'");
        let workloads: Vec<Request> = urls.iter().map(|url| workload(url)).collect::<Result<_>>()?;
        let server = |command: &String| -> Result<Server> {
            let mut server = server(command)?;
            server.ready.clone_from(&workloads[0].path);
            Ok(server)
        };
        let servers = [server(&commands[0])?, server(&commands[1])?];
        Ok(Self { servers, workloads, timeout: DEFAULT_TIMEOUT, connections: None })
    }

    fn of_scenario(path: &str, names: &[String; 2], requests: &[String]) -> Result<Self> {
        let scenario = Scenario::load(Path::new(path))?.only(requests)?;
        let named = |name: &String| -> Result<Server> {
            let found = scenario.servers.iter().find(|server| server.name == *name);
            found.cloned().ok_or_else(|| {
                let known: Vec<&str> = scenario.servers.iter().map(|server| server.name.as_str()).collect();
                anyhow!("{path} has no server `{name}`; its servers are: {}", known.join(", "))
            })
        };
        Ok(Self {
            servers: [named(&names[0])?, named(&names[1])?],
            workloads: scenario.requests,
            timeout: scenario.timeout,
            connections: Some(scenario.connections),
        })
    }

    /// Names of A and B in tables.
    pub fn names(&self) -> [String; 2] {
        self.servers.each_ref().map(|server| server.name.clone())
    }

    /// Fails, naming what is missing.
    pub fn check_installed(&self) -> Result<()> {
        self.servers.iter().try_for_each(Server::check_installed)
    }
}

/// A command line as a shell would split it, with assignments in front as its environment.
fn server(command: &str) -> Result<Server> {
    let words = shlex::split(command)
        .with_context(|| format!("the command `{command}` has a quote that is not closed"))?;
    let is_assignment = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    };
    let env: Vec<(String, String)> = words
        .iter()
        .take_while(is_assignment)
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let words = words[env.len()..].to_vec();
    ensure!(!words.is_empty(), "the command `{command}` names no program");
    Ok(Server { env, ..Server::from_command(command, words) })
}

/// A GET of the URL's path.
fn workload(url: &str) -> Result<Request> {
    ensure!(
        url.contains(PORT),
        "--url {url}: write {PORT} where the port stands, for each server gets one of its own: \
         'http://127.0.0.1:{PORT}/'"
    );
    let parsed = Url::parse(&url.replace(PORT, "1"))?;
    if !parsed.address.ip().is_loopback() {
        bail!("--url {url}: the servers are started here, so its host must be 127.0.0.1");
    }
    let shown = parsed.path.split('?').next().unwrap_or_default();
    Ok(Request {
        name: format!("GET {shown}"),
        method: "GET".to_owned(),
        path: parsed.path.clone(),
        headers: Vec::new(),
        body: Vec::new(),
        expect: Expect { status: 200, body: None },
        same_headers: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(a: &str, urls: &[&str]) -> Result<Contenders> {
        Contenders::of(&Origin::Commands {
            commands: [a.to_owned(), "b".to_owned()],
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        })
    }

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let contenders =
            of("A=1 B='x y' node 'a b.mjs' --port {port}", &["http://127.0.0.1:{port}/x?y"]).unwrap();
        let [a, _] = &contenders.servers;
        assert_eq!(a.command, ["node", "a b.mjs", "--port", "{port}"]);
        assert_eq!(a.env, [("A".into(), "1".into()), ("B".into(), "x y".into())]);
        assert_eq!((a.ready.as_str(), contenders.workloads[0].name.as_str()), ("/x?y", "GET /x"));
    }

    #[test]
    fn each_mistake_is_named() {
        let refused = |a: &str, urls: &[&str]| of(a, urls).unwrap_err().to_string();
        assert!(refused("a", &[]).contains("--url"));
        assert!(refused("a 'b", &["http://127.0.0.1:{port}/"]).contains("not closed"));
        assert!(refused("A=1", &["http://127.0.0.1:{port}/"]).contains("names no program"));
        assert!(refused("a", &["http://127.0.0.1:80/"]).contains("write {port}"));
        assert!(refused("a", &["http://192.0.2.1:{port}/"]).contains("must be 127.0.0.1"));
    }
}
