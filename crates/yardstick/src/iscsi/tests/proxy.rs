//! Who stands between client and target, and may change what either says.
//!
//! In: where the target is, and a function that is shown every PDU with its digests. Out: an address to connect to, once. Both ways have a thread, which ends with its
//! connection.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::super::pdu::{self, BHS_LEN, DIGEST_LEN, at, flag, opcode};

/// Where a PDU goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToTarget,
    FromTarget,
}

/// One way of the connection.
struct Half<F> {
    way: Way,
    from: TcpStream,
    to: TcpStream,
    digests: [usize; 2],
    logged_in: Arc<AtomicBool>,
    alter: Arc<Mutex<F>>,
}

/// Starts one; `words` are the client's, and say which digests there are.
pub(super) fn start<F>(target: SocketAddr, words: &str, alter: F) -> SocketAddr
where
    F: FnMut(Way, &mut Vec<u8>) + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let digests =
        ["--hdgst", "--ddgst"].map(|word| if words.contains(word) { DIGEST_LEN } else { 0 });
    let (alter, logged_in) = (Arc::new(Mutex::new(alter)), Arc::new(AtomicBool::new(false)));
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client");
        let server = TcpStream::connect(target).expect("a target");
        let twin = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        for (way, from, to) in [
            (Way::ToTarget, twin(&client), twin(&server)),
            (Way::FromTarget, twin(&server), twin(&client)),
        ] {
            let (alter, logged_in) = (Arc::clone(&alter), Arc::clone(&logged_in));
            let half = Half { way, from, to, digests, logged_in, alter };
            std::thread::spawn(move || half.run());
        }
    });
    address
}

impl<F: FnMut(Way, &mut Vec<u8>)> Half<F> {
    /// Passes PDUs on until either end is gone.
    fn run(mut self) {
        while let Ok(mut bytes) = self.pdu() {
            (self.alter.lock().expect("no panic"))(self.way, &mut bytes);
            if self.to.write_all(&bytes).is_err() {
                break;
            }
        }
        for stream in [&self.from, &self.to] {
            // The other way may have done so.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Reads a PDU with its digests, of which there are none in a login.
    fn pdu(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; BHS_LEN];
        self.from.read_exact(&mut bytes)?;
        let [header, data] = match self.logged_in.load(Ordering::SeqCst) {
            true => self.digests,
            false => [0, 0],
        };
        let len = pdu::padded(pdu::data_len(&bytes));
        bytes.resize(BHS_LEN + header + len + if len > 0 { data } else { 0 }, 0);
        self.from.read_exact(&mut bytes[BHS_LEN..])?;
        if bytes[0] == opcode::LOGIN_RESPONSE && bytes[at::FLAGS] & flag::FINAL != 0 {
            self.logged_in.store(true, Ordering::SeqCst);
        }
        Ok(bytes)
    }
}
