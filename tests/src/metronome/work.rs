//! What a request can be made to do besides reading and writing.

use std::{
    io,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    ptr::null_mut,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    mm::{MapFlags, ProtFlags, mmap_anonymous, munmap},
    thread::futex,
};

use super::clock::now_ns;

/// Pages are this big.
const PAGE: usize = 4_096;

/// Bytes mapped at a time to fault on.
const FAULT_BYTES: usize = 4 << 20;

/// Keeps the CPU busy.
pub fn spin(time: Duration) {
    let end_ns = now_ns() + time.as_nanos() as u64;
    while now_ns() < end_ns {
        std::hint::spin_loop();
    }
}

/// Blocks in futex until another thread has slept so long and wakes it.
pub fn wait_on_futex(time: Duration) {
    let word = Arc::new(AtomicU32::new(0));
    {
        let word = word.clone();
        thread::spawn(move || {
            thread::sleep(time);
            word.store(1, Ordering::Release);
            let _ = futex::wake(&word, futex::Flags::PRIVATE, 1);
        });
    }
    while word.load(Ordering::Acquire) == 0 {
        // A value that changed meanwhile, or a wake-up for nothing: look again.
        let _ = futex::wait(&word, futex::Flags::PRIVATE, 0, None);
    }
}

/// Touches fresh pages until so much time has passed.
pub fn fault(time: Duration) -> io::Result<()> {
    let end_ns = now_ns() + time.as_nanos() as u64;
    while now_ns() < end_ns {
        // SAFETY: a new mapping of our own, at an address of the kernel's choice.
        let pages = unsafe {
            mmap_anonymous(null_mut(), FAULT_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        for page in (0..FAULT_BYTES).step_by(PAGE) {
            if now_ns() >= end_ns {
                break;
            }
            // SAFETY: it lies in the mapping, which is writable and nobody else's.
            unsafe { pages.cast::<u8>().add(page).write_volatile(1) };
        }
        // SAFETY: it was mapped above and nothing points into it any more.
        unsafe { munmap(pages, FAULT_BYTES) }?;
    }
    Ok(())
}

/// Blocks reading a pipe until another thread has slept so long and writes to it.
pub fn wait_on_pipe(time: Duration) -> io::Result<()> {
    let (mut reader, mut writer) = io::pipe()?;
    thread::spawn(move || {
        thread::sleep(time);
        let _ = writer.write_all(b"x");
    });
    reader.read_exact(&mut [0])
}

/// A round trip to a [`peer`](super::client::Peer) that answers after so long.
pub fn ask_peer(peer: &mut Option<TcpStream>, port: u16, delay: Duration) -> io::Result<()> {
    let stream = match peer {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            peer.insert(stream)
        }
    };
    stream.write_all(&(delay.as_micros() as u32).to_be_bytes())?;
    // Some clients look before they take: the answer comes once all the same.
    stream.peek(&mut [0; 4])?;
    stream.read_exact(&mut [0; 4])
}
