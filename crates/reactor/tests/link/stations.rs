//! Where stations are that are known by an address of IP: the kernel's table of neighbours, followed
//! while it changes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;

use reactor::{Found, Stations, look_at_stations};

use super::*;
use net::{be_impatient, forget_neighbour, give_address, rename, set_neighbour, without_net_admin};

const ONE: &str = "one";
const ADDRESS: [u8; 4] = [10, 0, 1, 2];
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Runs a test with a cable that has an address at one end. Nobody answers at the other.
fn on_a_cable(name: &str, test: impl FnOnce() + Send) {
    in_namespace(name, || {
        if !make_pair(ONE, "other", 1) {
            return;
        }
        give_address(ONE, [10, 0, 1, 1]);
        be_impatient(ONE);
        set_up("other", true);
        set_up(ONE, true);
        test();
    });
}

#[track_caller]
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let until = Clock::now() + HANG;
    while !is_so() {
        assert!(Clock::now() < until, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the kernel says of the entry: `ATF_*`, of which 4 is that somebody made it for good.
fn flags() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/thread-self/net/arp").unwrap();
    let line = text.lines().find(|line| line.starts_with("10.0.1.2 "))?;
    let flags = line.split_whitespace().nth(2)?;
    u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()
}

#[test]
fn a_station_is_asked_for_found_followed_and_lost() {
    on_a_cable("stations::a_station_is_asked_for_found_followed_and_lost", || {
        let (tell, told) = mpsc::channel();
        let stations = Stations::start(move || tell.send(()).unwrap_or_default()).unwrap();
        let is = |found: Found| move |stations: &Stations| stations.find(ONE, THERE) == found;
        assert_eq!(look_at_stations(ONE, &[THERE]).unwrap(), [Found::Unknown]);
        assert_eq!(stations.follow(ONE, THERE).unwrap(), Found::Unknown);
        // The kernel asks, since it was told to, and nobody answers, however often.
        wait("nobody answers", || is(Found::Failed)(&stations));
        wait("it is asked for again", || is(Found::Asked)(&stations));
        told.recv_timeout(HANG).expect("it was told");
        set_neighbour(ONE, ADDRESS, MAC, libc::NUD_REACHABLE);
        wait("it is found", || is(Found::At(MAC))(&stations));
        assert_eq!(look_at_stations(ONE, &[THERE]).unwrap(), [Found::At(MAC)]);
        // What is in doubt is probed, and is nowhere else until that failed.
        set_neighbour(ONE, ADDRESS, MAC, libc::NUD_STALE);
        std::thread::sleep(Duration::from_millis(100));
        assert!(is(Found::At(MAC))(&stations));
        forget_neighbour(ONE, ADDRESS);
        wait("it is lost", || is(Found::Failed)(&stations));
        stations.keep(|_, _| false);
        assert_eq!(stations.find(ONE, THERE), Found::Unknown);
    });
}

#[test]
fn more_changes_than_there_is_room_for_end_with_the_last() {
    on_a_cable("stations::more_changes_than_there_is_room_for_end_with_the_last", || {
        let (tell, told) = mpsc::channel();
        let stations = Stations::start(move || tell.send(()).unwrap_or_default()).unwrap();
        set_neighbour(ONE, ADDRESS, MAC, libc::NUD_PERMANENT);
        assert_eq!(stations.follow(ONE, THERE).unwrap(), Found::At(MAC));
        let mac = |number: u16| {
            let [high, low] = number.to_be_bytes();
            [2, 0, 0, 1, high, low]
        };
        let began = Clock::now();
        const CHANGES: u16 = 20_000;
        for number in 0..CHANGES {
            set_neighbour(ONE, ADDRESS, mac(number), libc::NUD_PERMANENT);
        }
        let last = Found::At(mac(CHANGES - 1));
        wait("the last is seen", || stations.find(ONE, THERE) == last);
        let most = began.elapsed().as_millis() / 10 + 2;
        let count = told.try_iter().count() as u128;
        assert!(count <= most, "told {count} times, and {most} are enough");
        // One that somebody made for good is so still.
        assert_eq!(flags().map(|flags| flags & 4), Some(4));
    });
}

#[test]
fn an_interface_that_goes_takes_its_stations_along_and_brings_them_back() {
    on_a_cable(
        "stations::an_interface_that_goes_takes_its_stations_along_and_brings_them_back",
        || {
            let stations = Stations::start(|| {}).unwrap();
            set_neighbour(ONE, ADDRESS, MAC, libc::NUD_REACHABLE);
            assert_eq!(stations.follow(ONE, THERE).unwrap(), Found::At(MAC));
            assert_eq!(stations.follow("none", THERE).unwrap(), Found::Away);
            let is = |found: Found| stations.find(ONE, THERE) == found;
            set_up(ONE, false);
            wait("it is away", || is(Found::Away));
            set_up(ONE, true);
            wait("it is asked for", || is(Found::Asked) || is(Found::Failed));
            set_neighbour(ONE, ADDRESS, MAC, libc::NUD_REACHABLE);
            wait("it is found", || is(Found::At(MAC)));
            // Another interface has the name now.
            set_up(ONE, false);
            rename(ONE, "another");
            wait("it is away", || is(Found::Away));
            delete("another");
            assert!(make_pair(ONE, "third", 1));
            give_address(ONE, [10, 0, 1, 1]);
            set_up("third", true);
            set_up(ONE, true);
            set_neighbour(ONE, ADDRESS, MAC, libc::NUD_REACHABLE);
            wait("it is found there", || is(Found::At(MAC)));
        },
    );
}

/// Who may not tell the kernel sends something, and the kernel asks.
#[test]
fn a_station_is_asked_for_without_the_right_to_change_the_network() {
    on_a_cable("stations::a_station_is_asked_for_without_the_right_to_change_the_network", || {
        without_net_admin(|| {
            let stations = Stations::start(|| {}).unwrap();
            assert_eq!(stations.follow(ONE, THERE).unwrap(), Found::Unknown);
            wait("nobody answers", || stations.find(ONE, THERE) == Found::Failed);
            stations.settle(&[(ONE.to_owned(), THERE)], HANG);
        });
    });
}
