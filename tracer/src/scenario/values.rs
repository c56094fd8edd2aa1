//! Values written as text: durations, signals, and the parts of an HTTP request.

use std::time::Duration;

use rustix::process::Signal;

/// Reads `500ms`, `2s`, `1.5s` or `1m`; the error is a sentence with the fix.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit_s = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(format!("`{text}` is not a duration; write a number and ms, s or m, as in \"2s\"")),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * unit_s).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("`{text}` is not a duration above zero; write, for example, \"2s\""))
}

/// Signals a server may be stopped by.
const STOP_SIGNALS: [(&str, Signal); 7] = [
    ("SIGTERM", Signal::TERM),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGHUP", Signal::HUP),
    ("SIGKILL", Signal::KILL),
    ("SIGUSR1", Signal::USR1),
    ("SIGUSR2", Signal::USR2),
];

/// Reads a signal's name.
pub fn parse_signal(text: &str) -> Result<Signal, String> {
    STOP_SIGNALS.into_iter().find(|(name, _)| *name == text).map(|(_, signal)| signal).ok_or_else(|| {
        let names = STOP_SIGNALS.map(|(name, _)| name).join(", ");
        format!("`{text}` is not a signal to stop a server by; write one of {names}")
    })
}

/// A method must be an upper-case word: a lower-case one is another method to HTTP.
pub fn check_method(method: &str) -> Result<(), String> {
    if !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
        return Ok(());
    }
    Err(format!("`{method}` is not an HTTP method; write it in upper case, as in \"GET\""))
}

/// A path must fit in a request line.
pub fn check_path(path: &str) -> Result<(), String> {
    if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!("`{path}` is not a path; begin it with / and percent-encode spaces and non-ASCII letters"))
}

/// Headers the driver writes itself, for the framing depends on them.
const DRIVER_HEADERS: [&str; 3] = ["connection", "content-length", "transfer-encoding"];

/// A header must be well formed and not one of the driver's own.
pub fn check_header(name: &str, value: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("`{name}` is not a header name; use letters, digits and hyphens"));
    }
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(format!("the value of the header `{name}` has control characters; remove them"));
    }
    if DRIVER_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("the header `{name}` is written by tracer itself; remove it"));
    }
    Ok(())
}

/// A variable must have a name, and not be one that `tracer` sets.
pub fn check_variable(name: &str) -> Result<(), String> {
    match name {
        "PORT" => Err("PORT is set by tracer itself; for a fixed port write `port = 8080`".to_owned()),
        "TRACER_TMP" => Err("TRACER_TMP is set by tracer itself; remove it".to_owned()),
        _ if name.is_empty() || name.contains(['=', '\0']) => {
            Err(format!("`{name}` is not the name of an environment variable; use letters, digits and _"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["", "2", "s", "0s", "-1s", "2 s", "2h", "1e9s", "1..5s", "99999999999999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = parse_duration(&text);
            let _ = parse_signal(&text);
            let _ = (check_method(&text), check_path(&text), check_header(&text, &text));
        }

        #[test]
        fn whole_milliseconds_are_exact(milliseconds in 1u64..10_000_000) {
            prop_assert_eq!(parse_duration(&format!("{milliseconds}ms")), Ok(Duration::from_millis(milliseconds)));
        }
    }
}
