//! A network namespace for a test: made, and gone with the test's thread; and the little of
//! rtnetlink that makes interfaces in it. Not by `ip`: whatever program a test starts has, for a
//! moment, the descriptors of all tests, and links that were closed are still there.
//!
//! Root needs nothing more. Others get a user namespace, which only a process with one thread can
//! enter: the test starts itself again in one. Where neither is permitted, the test says so and
//! passes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

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
            put(c"/proc/self/setgroups", "deny")?;
            put(c"/proc/self/uid_map", &users)?;
            put(c"/proc/self/gid_map", &groups)
        });
    }
    match command.status() {
        Ok(status) => assert!(status.success(), "{name} failed in its user namespace"),
        Err(error) => eprintln!("skipped: no user namespace is to be had: {error}"),
    }
}

fn put(path: &CStr, text: &str) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes())?;
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

    /// `struct ifaddrmsg`.
    fn address(mut self, index: i32, address: [u8; 4]) -> Request {
        self.0.extend([libc::AF_INET as u8, 24, 0, libc::RT_SCOPE_UNIVERSE]);
        self.0.extend(index.to_ne_bytes());
        self.attribute(libc::IFA_LOCAL, &address)
    }

    /// `struct ndmsg`, and the address.
    fn neighbour(mut self, index: i32, address: [u8; 4], state: u16) -> Request {
        self.0.extend([libc::AF_INET as u8, 0, 0, 0]);
        self.0.extend(index.to_ne_bytes());
        self.0.extend(state.to_ne_bytes());
        self.0.extend([0; 2]);
        self.attribute(libc::NDA_DST, &address)
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
        let socket = socket();
        send(&socket, &self.0, SendFlags::empty())?;
        let mut answer = [0u8; 4096];
        recv(&socket, &mut answer, RecvFlags::empty())?;
        // NLMSG_ERROR: 0, or an error number, behind the header.
        match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

/// How many ask an interface to let in every frame of its wire.
pub(crate) fn promiscuity(name: &str) -> u32 {
    /// `IFLA_PROMISCUITY`.
    const ATTRIBUTE: u16 = 30;
    let Request(mut bytes) = Request::new(libc::RTM_GETLINK, 0).interface(index_of(name), 0, 0);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    let socket = socket();
    send(&socket, &bytes, SendFlags::empty()).unwrap();
    let mut answer = [0u8; 16384];
    let (count, _) = recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
    // Behind the headers (16 bytes each) attributes of length, kind and value, each at a multiple
    // of 4.
    let mut attributes = &answer[32..count];
    while let [a, b, c, d, ..] = *attributes {
        let (length, kind) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
        if kind == ATTRIBUTE {
            return u32::from_ne_bytes(attributes[4..8].try_into().unwrap());
        }
        attributes = &attributes[usize::from(length).next_multiple_of(4)..];
    }
    panic!("{name}: the kernel does not tell who asks for all frames");
}

fn socket() -> OwnedFd {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
}

pub(crate) fn index_of(name: &str) -> i32 {
    rustix::net::netdevice::name_to_index(socket(), name).unwrap() as i32
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

/// Gives an interface an address, of a network of 256.
pub(crate) fn give_address(name: &str, address: [u8; 4]) {
    Request::new(libc::RTM_NEWADDR, CREATE).address(index_of(name), address).call().unwrap();
}

/// Writes an entry into the kernel's table of neighbours.
pub(crate) fn set_neighbour(name: &str, address: [u8; 4], mac: [u8; 6], state: u16) {
    let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    let request = Request::new(libc::RTM_NEWNEIGH, flags).neighbour(index_of(name), address, state);
    request.attribute(libc::NDA_LLADDR, &mac).call().unwrap();
}

pub(crate) fn forget_neighbour(name: &str, address: [u8; 4]) {
    Request::new(libc::RTM_DELNEIGH, 0).neighbour(index_of(name), address, 0).call().unwrap();
}

/// Has the kernel give up soon on who does not answer.
pub(crate) fn be_impatient(name: &str) {
    for (key, value) in [("mcast_solicit", "1"), ("retrans_time_ms", "50")] {
        let path = format!("/proc/sys/net/ipv4/neigh/{name}/{key}");
        std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

/// This thread has a capability no more.
fn give_up(capability: u32) {
    // `_LINUX_CAPABILITY_VERSION_3`, of this thread.
    let mut header: [u32; 2] = [0x2008_0522, 0];
    // Effective, permitted and inheritable, twice.
    let mut sets = [0u32; 6];
    for (call, changes) in [(libc::SYS_capget, false), (libc::SYS_capset, true)] {
        if changes {
            sets[0] &= !(1 << capability);
        }
        // SAFETY: the kernel reads and writes as many words as these arrays have.
        let result = unsafe { libc::syscall(call, header.as_mut_ptr(), sets.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

/// This thread may lock no more than so many bytes from now on; others of this process have the right to lock what
/// they like.
pub(crate) fn lock_at_most(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the kernel reads the limit and nothing else.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // CAP_IPC_LOCK.
    give_up(14);
}

/// Runs something in a thread that may not change the network.
pub(crate) fn without_net_admin(run: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // CAP_NET_ADMIN.
            give_up(12);
            run();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

pub(crate) fn take_address(name: &str, address: [u8; 4]) {
    Request::new(libc::RTM_DELADDR, 0).address(index_of(name), address).call().unwrap();
}

pub(crate) fn set_mtu(name: &str, mtu: u32) {
    let request = Request::new(NEW, 0).interface(index_of(name), 0, 0);
    request.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes()).call().unwrap();
}

/// Has the kernel forget after so many seconds what routers say of paths of IPv4. `false`: it is not
/// for this user to say.
pub(crate) fn forget_path_mtus_after(seconds: u32) -> bool {
    std::fs::write("/proc/sys/net/ipv4/route/mtu_expires", seconds.to_string()).is_ok()
}

/// Gives an interface, which is down, another name.
pub(crate) fn rename(name: &str, to: &str) {
    Request::new(NEW, 0).interface(index_of(name), 0, 0).name(to).call().unwrap();
}

pub(crate) fn set_mac(name: &str, mac: [u8; 6]) {
    let request = Request::new(NEW, 0).interface(index_of(name), 0, 0);
    request.attribute(libc::IFLA_ADDRESS, &mac).call().unwrap();
}

/// `ETH_FLAG_RXVLAN`.
const STRIPS_TAGS: u32 = 1 << 8;

/// Whether an interface is to take VLAN tags off frames.
pub(crate) fn strips_tags(name: &str) -> bool {
    flags(name, [0x25, 0]) & STRIPS_TAGS != 0
}

/// Has an interface take VLAN tags off frames.
pub(crate) fn strip_tags(name: &str) {
    flags(name, [0x26, flags(name, [0x25, 0]) | STRIPS_TAGS]);
}

/// Whether the stack makes one long frame of several that come to an interface (GRO).
pub(crate) fn merges(name: &str) -> bool {
    // ETHTOOL_GGRO.
    flags(name, [0x2b, 0]) != 0
}

/// Has it do so.
pub(crate) fn merge(name: &str) {
    // ETHTOOL_SGRO.
    flags(name, [0x2c, 1]);
}

/// A command of ethtool with a number: of flags ETHTOOL_GFLAGS (0x25) or ETHTOOL_SFLAGS (0x26).
fn flags(name: &str, mut value: [u32; 2]) -> u32 {
    // SAFETY: a request of zeros is valid; the kernel reads the name and reads or fills the value,
    // both of which live until the call returns.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        libc::ioctl(socket_of_ioctls().as_raw_fd(), libc::SIOCETHTOOL, &raw mut request)
    };
    assert_eq!(result, 0, "{name}: {}", io::Error::last_os_error());
    value[1]
}

fn socket_of_ioctls() -> OwnedFd {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
}

/// What a sender leaves to the interface (`struct virtio_net_hdr`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct LeftToHardware {
    /// 1: a checksum is to be put in.
    flags: u8,
    /// 1: it is to be cut as TCP over IPv4.
    kind: u8,
    head_length: u16,
    piece_length: u16,
    /// From where on is summed, and where from there the sum goes.
    sum_from: u16,
    sum_at: u16,
}

impl LeftToHardware {
    /// The checksum of UDP over IPv4.
    pub(crate) const CHECKSUM: LeftToHardware = LeftToHardware {
        flags: 1,
        kind: 0,
        head_length: 0,
        piece_length: 0,
        sum_from: 34,
        sum_at: 6,
    };
    /// To cut TCP over IPv4, and to sum the pieces.
    pub(crate) const PIECES: LeftToHardware = LeftToHardware {
        flags: 1,
        kind: 1,
        head_length: 54,
        piece_length: 1400,
        sum_from: 34,
        sum_at: 16,
    };
}

/// Sends a frame as a host's stack does that leaves something to its interface. A veth does none of
/// it: the other end gets the frame as it is.
pub(crate) fn send_unfinished(name: &str, left: LeftToHardware, frame: &[u8]) {
    let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    let one: libc::c_int = 1;
    // SAFETY: the kernel reads an integer and an address of the lengths that are given, and of the
    // structure its own bytes, none of which is padding.
    let head = unsafe {
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR);
        let fd = socket.as_raw_fd();
        assert_eq!(0, libc::setsockopt(fd, level, option, (&raw const one).cast(), 4));
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index_of(name);
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        assert_eq!(0, libc::bind(fd, (&raw const address).cast(), length));
        std::slice::from_raw_parts((&raw const left).cast::<u8>(), size_of::<LeftToHardware>())
    };
    let bytes = [head, frame].concat();
    assert_eq!(send(&socket, &bytes, SendFlags::empty()).unwrap(), bytes.len());
}

/// Whether the host speaks IPv6 on an interface.
pub(crate) fn speaks_ipv6(name: &str) -> bool {
    std::fs::read_to_string(no_ipv6(name)).is_ok_and(|text| text.trim() == "0")
}

/// Where the system keeps whether an interface is without IPv6.
fn no_ipv6(name: &str) -> String {
    format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
}

/// Has the host not speak IPv6 on an interface, where the kernel knows it.
pub(crate) fn silence_ipv6(name: &str) {
    let _ = std::fs::write(no_ipv6(name), "1");
}

/// Has the host speak it.
pub(crate) fn speak_ipv6(name: &str) {
    std::fs::write(no_ipv6(name), "0").unwrap();
}

/// Deletes an interface, and with it the other end of its cable.
pub(crate) fn delete(name: &str) {
    Request::new(libc::RTM_DELLINK, 0).interface(index_of(name), 0, 0).call().unwrap();
}
