//! Across a veth pair between two network namespaces: when a slow reader's last bytes left the server (`--detail drain`),
//! and when a response was acknowledged (`--detail acks`).

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    net::sockopt::set_tcp_quickack,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use tracer::{
    load::monotonic_ns,
    probe::{self, hooks::Detail},
    recording::{Grade, Phase, Request},
    window::{Settings, Window},
};
use tracer_tests::{
    cli::finish,
    truth::{Requests, alone},
};

const BODY_BYTES: usize = 1 << 20;
/// What the client reads at once, and how long it waits before each: 1 MiB takes it some 160 ms.
const PIECE_BYTES: usize = 32 * 1024;
const PIECE_PAUSE: Duration = Duration::from_millis(5);
const PORT: u16 = 8080;
const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);
const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 2);

/// A response in one blocking call, which returns when the socket's buffer holds the rest.
const SERVER: &str = "import socket, sys
body = bytes(int(sys.argv[3]))
head = b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print('listening', flush=True)
while True:
    connection, _ = listener.accept()
    while connection.recv(65536):
        connection.sendall(head + body)
    connection.close()
";

/// Two network namespaces with a veth pair between them, and a server in one; removed when dropped.
struct Across {
    name: String,
    server: Option<Child>,
}

impl Across {
    #[track_caller]
    fn start(body_bytes: usize) -> Self {
        let name = format!("tracer-{}-{body_bytes}", std::process::id());
        let mut across = Self { name, server: None };
        let (server, client) = (across.namespace("s"), across.namespace("c"));
        for namespace in [&server, &client] {
            ip(&["netns", "add", namespace]);
        }
        ip(&[
            "-n", &server, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", &client,
        ]);
        for (namespace, address) in [(&server, SERVER_ADDRESS), (&client, CLIENT_ADDRESS)] {
            ip(&["-n", namespace, "address", "add", &format!("{address}/24"), "dev", "veth0"]);
            ip(&["-n", namespace, "link", "set", "veth0", "up"]);
        }
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &server, "python3", "-c", SERVER]);
        command.args([SERVER_ADDRESS.to_string(), PORT.to_string(), body_bytes.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("iproute2 and python3 are installed");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        across.server = Some(child);
        BufReader::new(stdout).read_line(&mut line).expect("it says when it listens");
        assert_eq!(line, "listening\n");
        across
    }

    fn namespace(&self, side: &str) -> String {
        format!("{}-{side}", self.name)
    }

    /// Its process: `ip netns exec` becomes the server.
    fn server_pid(&self) -> u32 {
        self.server.as_ref().expect("it was started").id()
    }

    /// What a client in the other namespace does with a new connection.
    fn connected<T: Send + 'static>(&self, client: impl FnOnce(TcpStream) -> T + Send + 'static) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.namespace("c"))).expect("it was made");
        let within = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may enter a namespace");
            let stream = TcpStream::connect((SERVER_ADDRESS, PORT)).expect("the server listens");
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes options");
            client(stream)
        };
        // In a thread of its own: the namespace is the thread's.
        thread::spawn(within).join().expect("the client does not panic")
    }

    /// One request, answered slowly read; gives when the last byte was there.
    fn read_slowly(&self) -> u64 {
        self.connected(|mut stream| {
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
            let mut piece = vec![0; PIECE_BYTES];
            let mut left_bytes = BODY_BYTES;
            while left_bytes > 0 {
                // Slow on purpose: the reader's pace is what the test is about.
                thread::sleep(PIECE_PAUSE);
                let read_bytes = stream.read(&mut piece).expect("the server answers");
                assert_ne!(read_bytes, 0, "the response ended {left_bytes} bytes early");
                left_bytes = left_bytes.saturating_sub(read_bytes);
            }
            monotonic_ns()
        })
    }

    /// Two requests, each answered and read, a pause between them; gives when each was sent. `quick`: the client's
    /// kernel acknowledges at once, else with the next data it sends.
    fn ask_twice(&self, quick: bool) -> [u64; 2] {
        self.connected(move |mut stream| {
            [(); 2].map(|()| {
                set_tcp_quickack(&stream, quick).expect("a socket takes options");
                let send_ns = monotonic_ns();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
                assert_ne!(stream.read(&mut [0; 4096]).expect("the server answers"), 0);
                // The client's own time, well below the 40 ms for which its kernel may wait.
                thread::sleep(Duration::from_millis(10));
                send_ns
            })
        })
    }

    /// What was traced while the client did its part.
    fn traced<T>(
        &self,
        details: impl IntoIterator<Item = Detail>,
        client: impl FnOnce(&Self) -> T,
    ) -> (Vec<Request>, T) {
        let settings = Settings {
            processes: vec![self.server_pid()],
            ports: vec![PORT],
            probes: probe::Options { details: details.into_iter().collect(), ..probe::Options::default() },
            ..Settings::default()
        };
        let window = Window::open(&settings, Requests::default()).expect("the programs can be attached");
        let known = client(self);
        let (_, Requests(mut requests)) = window.close(None).expect("the window closes");
        requests.sort_by_key(|request| request.index);
        (requests, known)
    }

    /// The slowly read request as it was traced, and when the client had its last byte.
    fn slowly_read(&self, details: impl IntoIterator<Item = Detail>) -> (Request, u64) {
        let (mut requests, had_ns) = self.traced(details, Self::read_slowly);
        assert_eq!(requests.len(), 1, "{requests:#?}");
        (requests.remove(0), had_ns)
    }
}

impl Drop for Across {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        // The veth pair goes with its namespaces.
        for side in ["s", "c"] {
            finish(Command::new("ip").args(["netns", "delete", &self.namespace(side)]));
        }
    }
}

#[track_caller]
fn ip(arguments: &[&str]) {
    let said = finish(Command::new("ip").args(arguments));
    assert_eq!(said.code, 0, "ip {arguments:?}: {said:#?}");
}

#[test]
fn the_drain_of_a_slow_reader_is_dated() {
    let _alone = alone();
    let across = Across::start(BODY_BYTES);

    let (request, had_ns) = across.slowly_read([Detail::Drain]);
    assert!(request.bytes_out > BODY_BYTES as u64, "{request:#?}");
    assert_eq!(request.grade, Grade::Measured, "{request:#?}");
    // Larger than one piece's pause: the buffer held many pieces when the write returned.
    let drain_ns = request.phase_ns(Phase::Drain);
    assert!(drain_ns > 2 * PIECE_PAUSE.as_nanos() as u64, "{request:#?}");
    assert!(request.end_ns < had_ns, "the last byte was read before it was sent: {had_ns}, {request:#?}");
    assert_eq!(request.wall_ns(), request.end_ns - request.first_byte_ns);

    // Without the detail the response ends at its last write, and says that this is a guess.
    let (request, _) = across.slowly_read([]);
    assert_eq!(request.phase_ns(Phase::Drain), 0, "{request:#?}");
    assert_eq!(request.grade, Grade::Inferred, "{request:#?}");
}

#[test]
fn an_acknowledgement_is_dated() {
    let _alone = alone();
    let across = Across::start(100);

    // Held back by the client's kernel, it comes with the next request.
    let (requests, sent_ns) = across.traced([Detail::Acks], |across| across.ask_twice(false));
    let [first, second] = &requests[..] else { panic!("{requests:#?}") };
    assert!(first.end_ns < sent_ns[1], "{first:#?}");
    assert!((sent_ns[1]..=second.first_byte_ns).contains(&first.acked_ns), "{sent_ns:?} {requests:#?}");
    // The last one comes with the client's FIN, and the end of the response is where it was.
    assert!(second.acked_ns > second.end_ns + 5_000_000, "{second:#?}");
    assert_eq!(second.wall_ns(), second.end_ns - second.first_byte_ns);

    // Sent at once, it is there before the client goes on.
    let (requests, sent_ns) = across.traced([Detail::Acks], |across| across.ask_twice(true));
    let [first, _] = &requests[..] else { panic!("{requests:#?}") };
    assert!((first.first_byte_ns..sent_ns[1]).contains(&first.acked_ns), "{sent_ns:?} {first:#?}");

    // Nobody asked: nothing is waited for, and no mark is made up.
    let (requests, _) = across.traced([], |across| across.ask_twice(true));
    assert!(requests.len() == 2 && requests.iter().all(|request| request.acked_ns == 0), "{requests:#?}");
}
