//! What is left behind: by an end of either side, and whose it is.

use super::*;

#[test]
fn a_killed_record_leaves_the_target_and_nothing_else() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let output = folder.path().join("it");
    let (pid, url) = (server.pid().to_string(), server.url("/"));
    let options = ["record", "-p", &pid, "--url", &url, "--duration", "60s", "-o", text(&output)];
    let mut running = start(&mut tracer(options));
    let programs = until_traced(&mut running);
    assert!(programs.is_subset(&programs_loaded()), "the programs seen are in the kernel");
    running.signal(Signal::KILL);
    let said = running.said();
    assert_eq!(said.code, 128 + 9, "{said:#?}");
    until("its programs are gone", || programs.is_disjoint(&programs_loaded()));
    assert!(server.answers());
    assert_eq!(names(folder.path()), [""; 0], "nothing is half written");
    record(&server, &output, &[]).assert_held();
}

#[test]
fn a_killed_bench_leaves_no_server_and_no_file() {
    let _alone = begin();
    let folder = folder();
    let options = ["bench", "--duration", "60s", "--rounds", "1"];
    let mut running = start(tracer(options).env("TMPDIR", folder.path()));
    let tracer = running.pid();
    let mut servers = Vec::new();
    until("its server runs", || {
        servers = descendants(tracer);
        assert!(running.runs());
        servers.iter().any(|&server| {
            let command = fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains("\0serve\0")
        })
    });
    running.signal(Signal::KILL);
    assert_eq!(running.said().code, 128 + 9);
    until("its server is gone", || servers.iter().all(|&server| !lives(server)));
    until("its files are gone", || names(folder.path()).is_empty());
}

/// `tracer` said in one sentence that its target exited, and gave the report of what it saw until then.
#[track_caller]
fn assert_exit_told(said: &Said, name: &str) {
    assert_eq!(said.code, 2, "{said:#?}");
    assert!(said.stderr.contains(&format!("tracer: {name} exited in mid-run")), "{said:#?}");
    let told = said.unwrapped();
    for part in ["the target exited in mid-run", "ended early: the target exited", "largest phase"] {
        assert!(told.contains(part), "`{part}` is missing: {said:#?}");
    }
    assert!(!said.stdout.contains("DEFECT"), "{said:#?}");
}

#[test]
fn a_target_that_exits_ends_its_recording() {
    let _alone = begin();
    let folder = folder();
    for load in [false, true] {
        let mut server = Server::start();
        let output = folder.path().join(load.to_string());
        let (pid, url) = (server.pid().to_string(), server.url("/"));
        let mut options = vec!["record", "-p", &pid, "--duration", "60s", "-o", text(&output)];
        options.extend(load.then_some(["--url", &url]).into_iter().flatten());
        let mut running = start(&mut tracer(options));
        until_traced(&mut running);
        let begun = Instant::now();
        if load {
            let mut account = CpuAccount::new(&[server.pid()]);
            let before = account.sample();
            until("it worked", || account.sample().since(before).cpu_ns > 200_000_000);
        } else {
            traffic_while(server.port, || begun.elapsed() < Duration::from_secs(1));
        }
        server.kill();
        let said = running.said();
        assert!(begun.elapsed() < Duration::from_secs(30), "it waited on");
        assert_exit_told(&said, "tracer");
        assert!(said.stderr.contains(&format!("gone: process {pid}")), "{said:#?}");
        assert_eq!(run(["report", text(&output)]).stdout, said.stdout);
    }
}

#[test]
fn without_a_length_the_end_of_the_target_is_the_end_that_was_meant() {
    let _alone = begin();
    let folder = folder();
    let output = folder.path().join("it");
    let said = run(["record", "-o", text(&output), "--", "sh", "-c", "exit 0"]);
    assert!(!said.unwrapped().contains("ended early"), "{said:#?}");
    assert_eq!(names(folder.path()), ["it"]);
    let output = folder.path().join("failed");
    let said = run(["record", "-o", text(&output), "--", "sh", "-c", "echo no database here; exit 3"]);
    assert_eq!(said.code, 2, "{said:#?}");
    for part in ["sh exited in mid-run", "exit status: 3", "no database here"] {
        assert!(said.stderr.contains(part), "`{part}` is missing: {said:#?}");
    }
}

#[test]
fn a_server_that_exits_ends_bench_and_check() {
    let _alone = begin();
    let folder = folder();
    let program = binary();
    let serve = [text(&program), "serve", "--port", "{port}"];
    let command = format!("command = {:?}", [&["timeout", "--signal", "KILL", "3"][..], &serve].concat());
    let file = scenario(folder.path(), "", &command);
    let said = run(["bench", text(&file), "--duration", "20s"]);
    assert_eq!(said.code, 2, "{said:#?}");
    assert!(said.stderr.contains("tracer: one exited in mid-run"), "{said:#?}");
    assert!(said.unwrapped().starts_with("one hello: INVALID, the target exited in mid-run"), "{said:#?}");
    let promise = ["--writes-per-response", "1"];
    run(["check", text(&file), "--duration", "20s"].iter().chain(&promise))
        .assert_refused(&["one exited in mid-run", "ended by itself"]);
    let mut server = Server::start();
    let (pid, url) = (server.pid().to_string(), server.url("/"));
    let mut running = start(tracer(["check", "-p", &pid, "--url", &url, "--duration", "60s"]).args(promise));
    until_traced(&mut running);
    server.kill();
    running.said().assert_refused(&["tracer exited in mid-run", &format!("gone: process {pid}")]);
}

#[test]
fn a_server_that_does_not_start_leaves_the_results_of_those_before_it() {
    let _alone = begin();
    let folder = folder();
    let file = scenario(folder.path(), "", &builtin());
    let broken = "\n[[server]]\nname = \"two\"\ncommand = [\"false\"]\n";
    let both = fs::read_to_string(&file).unwrap() + broken;
    fs::write(&file, both).unwrap();
    let said = run(["bench", text(&file), "--requests", "500", "--rounds", "1"]);
    assert_eq!(said.code, 2, "{said:#?}");
    assert!(said.unwrapped().starts_with("one hello: "), "{said:#?}");
    assert!(said.stderr.contains("two hello"), "{said:#?}");
}

#[test]
fn servers_and_recordings_belong_to_who_called_sudo() {
    let _alone = begin();
    let folder = folder();
    // Nobody must be able to reach the program: the build folder may be closed to others.
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("tracer");
    fs::copy(binary(), &program).expect("the program can be copied");
    let output = folder.path().join("it");
    let port = free_port().to_string();
    let url = format!("http://127.0.0.1:{port}/");
    let mut command = tracer(["record", "--url", &url, "--duration", "2s", "-o", text(&output)]);
    command.args(["--", text(&program), "serve", "--port", &port]).current_dir(folder.path());
    let nobody = NOBODY.to_string();
    let mut running = start(command.env("SUDO_UID", &nobody).env("SUDO_GID", &nobody));
    let pattern = format!("{} serve --port {port}", text(&program));
    until("the server runs as nobody", || {
        assert!(running.runs());
        let started = processes_with(&pattern).into_iter();
        let uids: Vec<_> =
            started.filter_map(|pid| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())).collect();
        // Between fork and exec the command line is tracer's own, which holds the pattern too.
        uids.contains(&NOBODY)
    });
    running.said().assert_held();
    for path in [output.clone(), output.join("run.json"), output.join("requests.parquet")] {
        let owner = fs::metadata(&path).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (NOBODY, NOBODY), "{}", path.display());
    }
}

#[test]
fn a_normal_user_on_a_terminal_gets_there_through_sudo() {
    let _alone = begin();
    let folder = folder();
    let user = SudoUser::create(folder.path());
    // The build folder may be closed to others.
    let program = folder.path().join("tracer");
    fs::copy(binary(), &program).expect("the program can be copied");
    let output = folder.path().join("it");
    let port = free_port();
    let (program, url) = (text(&program), format!("http://127.0.0.1:{port}/"));
    let tracer = format!("{program} record --url {url} --requests 2000 -o {}", text(&output));
    let as_user = format!("setpriv --reuid {0} --regid {0} --init-groups --reset-env {tracer}", user.name);
    let line = format!("{as_user} -- {program} serve --port {port}");
    // `script` gives it a terminal.
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("SHELL", "/bin/sh");
    let mut running = start(command.current_dir(folder.path()).stdin(Stdio::null()));
    until("the server runs as the user", || {
        assert!(running.runs());
        let served = |pid: &u32| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.starts_with(format!("{program}\0serve\0").as_bytes())
        };
        let mut servers = processes_with(&format!("{program} serve")).into_iter().filter(served);
        servers.any(|pid| fs::metadata(format!("/proc/{pid}")).is_ok_and(|owner| owner.uid() == user.uid))
    });
    let said = running.said();
    said.assert_held();
    let told = said.unwrapped();
    for part in [
        "tracer: this needs root: loading BPF programs",
        "running it again through sudo",
        "2,000 sent = 2,000 traced",
        "recording written to",
    ] {
        assert!(told.contains(part), "`{part}` is missing: {said:#?}");
    }
    for path in [output.clone(), output.join("run.json"), output.join("requests.parquet")] {
        assert_eq!(fs::metadata(&path).unwrap().uid(), user.uid, "{}", path.display());
    }
}

/// A user for the length of a test, who needs no password for sudo.
struct SudoUser {
    name: String,
    uid: u32,
    rule: PathBuf,
}

impl SudoUser {
    /// Makes one whose home this folder is.
    #[track_caller]
    fn create(home: &Path) -> Self {
        let name = format!("tracer-test-{}", std::process::id());
        let rule = Path::new("/etc/sudoers.d").join(&name);
        let added = finish(Command::new("useradd").args([
            "--user-group",
            "--no-create-home",
            "--home-dir",
            text(home),
            &name,
        ]));
        assert_eq!(added.code, 0, "{added:#?}");
        // From here on it is removed, whatever fails.
        let mut user = Self { name, uid: 0, rule };
        let id = finish(Command::new("id").args(["-u", &user.name]));
        user.uid = id.stdout.trim().parse().expect("a user has a number");
        std::os::unix::fs::chown(home, Some(user.uid), None).expect("a folder can be given away");
        fs::write(&user.rule, format!("{} ALL=(root) NOPASSWD: ALL\n", user.name))
            .expect("/etc/sudoers.d can be written: install sudo");
        user
    }
}

impl Drop for SudoUser {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.rule);
        let removed = finish(Command::new("userdel").arg(&self.name));
        if removed.code != 0 {
            eprintln!("the user {} is left behind: {removed:?}", self.name);
        }
    }
}
