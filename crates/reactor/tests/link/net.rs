//! A network namespace for a test: made, and gone with the test's thread; and the little of
//! rtnetlink that makes interfaces in it.
//!
//! Root needs nothing more. Others get a user namespace, which only a process with one thread can
//! enter: the test starts itself again in one. Where neither is permitted, the test says so and
//! passes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set in a process that was started again in a user namespace.
const INSIDE: &str = "LINK_TEST_IN_USER_NAMESPACE";

/// Runs a test, of this name, in a network namespace of its own.
pub(crate) fn in_namespace(name: &str, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match unshare(libc::CLONE_NEWNET) {
            Ok(()) => test(),
            Err(_) if std::env::var_os(INSIDE).is_none() => start_again(name),
            Err(error) => eprintln!("skipped: no network namespace is to be had: {error}"),
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: changes namespaces of the calling thread or process, touches no memory.
    let result = unsafe { libc::unshare(what) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn start_again(name: &str) {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (users, groups) = (format!("0 {user} 1"), format!("0 {group} 1"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(INSIDE, "1");
    // SAFETY: between fork and exec only system calls are made, on strings that were made before.
    unsafe {
        command.pre_exec(move || {
            unshare(libc::CLONE_NEWUSER)?;
            put("/proc/self/setgroups\0", "deny")?;
            put("/proc/self/uid_map\0", &users)?;
            put("/proc/self/gid_map\0", &groups)
        });
    }
    match command.status() {
        Ok(status) => assert!(status.success(), "{name} failed in its user namespace"),
        Err(error) => eprintln!("skipped: no user namespace is to be had: {error}"),
    }
}

fn put(path: &str, text: &str) -> io::Result<()> {
    // SAFETY: the path ends with a zero, and the text has its length.
    unsafe {
        let fd = libc::open(path.as_ptr().cast(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 || libc::write(fd, text.as_ptr().cast(), text.len()) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::close(fd);
    }
    Ok(())
}

/// A request of rtnetlink, which grows by attributes.
struct Request(Vec<u8>);

const NEW: u16 = libc::RTM_NEWLINK;
const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
/// `VETH_INFO_PEER`.
const PEER: u16 = 1;

impl Request {
    fn new(kind: u16, flags: u16) -> Request {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Request(bytes)
    }

    /// `struct ifinfomsg`.
    fn interface(mut self, index: i32, flags: u32, change: u32) -> Request {
        self.0.extend([0; 4]);
        self.0.extend(index.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
        self.0.extend(change.to_ne_bytes());
        self
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        self.0.extend((value.len() as u16 + 4).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn name(self, name: &str) -> Request {
        self.attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
    }

    fn nested(mut self, kind: u16, fill: impl FnOnce(Request) -> Request) -> Request {
        let at = self.0.len();
        self.0.extend([0; 4]);
        let mut request = fill(self);
        let length = (request.0.len() - at) as u16;
        request.0[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        request.0[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
        request
    }

    /// Asks the kernel, and waits for its answer.
    fn call(mut self) -> io::Result<()> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        // SAFETY: a new descriptor, whose owner is made at once; buffers have the lengths that are
        // said.
        unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let fd = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let socket = OwnedFd::from_raw_fd(fd);
            let mut answer = [0u8; 4096];
            if libc::send(socket.as_raw_fd(), self.0.as_ptr().cast(), self.0.len(), 0) < 0
                || libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) < 20
            {
                return Err(io::Error::last_os_error());
            }
            // NLMSG_ERROR: 0, or an error number, behind the header.
            match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            }
        }
    }
}

fn index_of(name: &str) -> i32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "{name:?} is not there");
    index as i32
}

/// Makes a pair of interfaces, each other's cable, that are down and have so many queues. `false`:
/// this kernel has none.
pub(crate) fn make_pair(one: &str, other: &str, queues: u32) -> bool {
    let queued = |request: Request| {
        request
            .attribute(libc::IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes())
            .attribute(libc::IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes())
    };
    let peer = |request: Request| queued(request.interface(0, 0, 0).name(other));
    let request = queued(Request::new(NEW, CREATE).interface(0, 0, 0).name(one));
    let request = request.nested(libc::IFLA_LINKINFO, |request| {
        let request = request.attribute(libc::IFLA_INFO_KIND, b"veth");
        request.nested(libc::IFLA_INFO_DATA, |request| request.nested(PEER, peer))
    });
    match request.call() {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            eprintln!("skipped: this kernel has no veth");
            false
        }
        Err(error) => panic!("veth: {error}"),
    }
}

/// Sets an interface up or down.
pub(crate) fn set_up(name: &str, up: bool) {
    let flag = libc::IFF_UP as u32;
    let flags = if up { flag } else { 0 };
    Request::new(NEW, 0).interface(index_of(name), flags, flag).call().unwrap();
}

pub(crate) fn set_mtu(name: &str, mtu: u32) {
    let request = Request::new(NEW, 0).interface(index_of(name), 0, 0);
    request.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes()).call().unwrap();
}

pub(crate) fn set_mac(name: &str, mac: [u8; 6]) {
    let request = Request::new(NEW, 0).interface(index_of(name), 0, 0);
    request.attribute(libc::IFLA_ADDRESS, &mac).call().unwrap();
}

/// Deletes an interface, and with it the other end of its cable.
pub(crate) fn delete(name: &str) {
    Request::new(libc::RTM_DELLINK, 0).interface(index_of(name), 0, 0).call().unwrap();
}
