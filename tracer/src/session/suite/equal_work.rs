//! Before anything is measured: every server is asked every workload's request once, and their answers compared.

use anyhow::Result;

use super::Session;
use crate::{
    equal_work::{Answer, Difference, ask, differences as compare},
    session::{interrupt, launch::Launch},
};

/// Where the servers differ. One that does not answer at all differs too.
pub(super) fn differences(session: &Session) -> Result<Vec<Difference>> {
    let scenario = session.scenario;
    let mut answers: Vec<Vec<(String, Answer)>> = vec![Vec::new(); scenario.requests.len()];
    let mut found = Vec::new();
    for server in &scenario.servers {
        if interrupt::requested() {
            break;
        }
        session.say(format_args!("what {} answers", server.name));
        let launch = Launch::start(scenario, server, session.placement)?;
        for (request, answers) in scenario.requests.iter().zip(&mut answers) {
            match ask(launch.address(), request, scenario.timeout) {
                Ok(answer) => answers.push((server.name.clone(), answer)),
                Err(error) => found.push(Difference {
                    server: server.name.clone(),
                    workload: request.name.clone(),
                    what: "answer".to_owned(),
                    wanted: "one".to_owned(),
                    got: format!("{error:#}"),
                }),
            }
        }
    }
    for (request, answers) in scenario.requests.iter().zip(&answers) {
        found.extend(compare(request, answers));
    }
    Ok(found)
}
