//! CHAP as an administrator switches it on: logins with the right proof and others, secrets that
//! change, what is refused, discovery, and our own initiator at our own target.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use ::iscsi::auth::{Asker, Challenge, Credentials, Login, Secret, is_key};
use rustix::process::Signal;
use testkit::iscsi::text as keys;
use wire::iscsi::{LoginFlags, Stage};

use crate::common::{Server, flat, plateway, text, write};
use crate::session::{BLOCK, HOST, Session, TARGET};

const OF_HOST: &str = "what the host knows";
const OF_TARGET: &str = "what the target knows";

/// Puts a secret into a file that its owner alone may read; returns its path.
pub(crate) fn put(directory: &Path, name: &str, secret: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, format!("{secret}\n")).expect("a file");
    mode(&path, 0o600);
    path.display().to_string()
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its owner may");
}

fn credentials(name: &str, secret: &str) -> Credentials {
    let secret = Secret::new(secret.as_bytes()).expect("a long secret");
    Credentials { name: name.to_owned(), secret }
}

pub(crate) fn login(user: &str, secret: &str) -> Login {
    Login { own: credentials(user, secret), target: None }
}

fn mutual(user: &str, secret: &str) -> Login {
    Login { target: Some(credentials(user, secret)), ..login("u", OF_HOST) }
}

/// A session by a port of this number, or why there is none.
fn log_in(address: &str, port: u8, login: Option<Login>) -> Result<Session, String> {
    log_in_as(HOST, address, port, login)
}

/// The same of a host that calls itself so.
pub(crate) fn log_in_as(
    name: &str,
    address: &str,
    port: u8,
    login: Option<Login>,
) -> Result<Session, String> {
    let mut session = Session::connect(address, port);
    let login = login.map(|login| (login, Challenge { identifier: port, bytes: [port; 32] }));
    let mut asker = Asker::new(login);
    let mut ours = keys(&[("InitiatorName", name), ("TargetName", TARGET)]);
    asker.begin(&mut ours);
    while !session.host.is_logged_in {
        let flags = match asker.is_last() {
            true => LoginFlags::transit(Stage::SECURITY, Stage::FULL_FEATURE),
            false => LoginFlags::stay(Stage::SECURITY),
        };
        let bytes = session.host.login(flags, &ours, ());
        session.send(&bytes);
        let said = session.hear();
        if !said.login().is_success() {
            return Err(said.login().to_string());
        }
        for (key, value) in said.pairs().iter().filter(|(key, _)| is_key(key)) {
            asker.take(key, value)?;
        }
        ours.clear();
        asker.go_on(&mut ours)?;
    }
    Ok(session)
}

/// A configuration of which the first export says this, and the listener that.
fn configuration(chap: &str, listener: &str) -> String {
    let export = match chap {
        "" => String::new(),
        chap => format!(", chap = {chap}"),
    };
    format!(
        "[[listener]]\niscsi = \"127.0.0.1:0\"\n{listener}\n\
         [[disk]]\nname = \"d0\"\nuri = \"ram:8MiB\"\n[[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
         [[export]]\nvolume = \"v0\"\niscsi = {{ target = \"{TARGET}\", lun = 0, hosts = \"any\"{export} }}\n"
    )
}

const BOTH: &str =
    "{ user = \"u\", secret_file = \"u\", mutual = { user = \"t\", secret_file = \"t\" } }";

/// A server whose target asks for proofs and gives them; its files lie where it works.
fn guarded(directory: &Path) -> (Server, String) {
    put(directory, "u", OF_HOST);
    put(directory, "t", OF_TARGET);
    let server = Server::configured(directory, &configuration(BOTH, ""));
    let address = server.address.trim_start_matches("iscsi ").to_owned();
    (server, address)
}

pub(crate) fn is_failure(session: Result<Session, String>) -> bool {
    session.err().is_some_and(|why| why.contains("authentication failure"))
}

#[test]
fn whoever_proves_who_it_is_is_let_in_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = guarded(directory.path());
    for right in [login("u", OF_HOST), mutual("t", OF_TARGET)] {
        let mut session = log_in(&address, 1, Some(right)).expect("it proves who it is");
        assert_eq!(session.read(0), [0; BLOCK as usize]);
    }
    let refused = |login: Option<Login>, why: &str| {
        assert!(is_failure(log_in(&address, 2, login)), "{why}");
        let line = format!("host {HOST} at 127.0.0.1:");
        let log = server.wait_for_log(&format!("was refused: CHAP of {TARGET}: {why}"));
        assert!(log.contains(&line), "{log}");
    };
    refused(Some(login("u", OF_TARGET)), "its secret is not that of the user");
    refused(Some(login("somebody", OF_HOST)), "there is no such user as it names");
    refused(None, "it offers no proof of who it is");
    let error = log_in(&address, 3, Some(mutual("t", "what nobody knows"))).err();
    assert_eq!(error.as_deref(), Some("the target does not know its secret"));
    let error = log_in(&address, 3, Some(mutual("another", OF_TARGET))).err().expect("another");
    assert!(error.contains("the target calls itself \"t\""), "{error}");

    assert_eq!(server.status()["iscsi_luns"][0]["chap"], "u, mutual t");
    let shown = [&["status"][..], &["status", "--json"], &["config"]];
    let shown = shown.map(|words| server.ask(words)).join("") + &server.log();
    assert!(shown.contains("chap = { user = \"u\", secret_file = \"u\""), "{shown}");
    assert!(![OF_HOST, OF_TARGET, "somebody"].iter().any(|word| shown.contains(word)), "{shown}");
    server.stop();
}

#[test]
fn another_secret_counts_from_the_next_login_once_it_is_applied() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = guarded(directory.path());
    let (config, title) = (configuration(BOTH, ""), format!("export v0: {TARGET} LUN 0"));
    let mut first = log_in(&address, 1, Some(login("u", OF_HOST))).expect("it is right");
    assert!(server.check(&config).contains("nothing changes"));

    put(directory.path(), "u", "another for u");
    let step = format!("~ {title}: chap: another secret");
    assert!(server.check(&config).contains(&step), "{}", server.check(&config));
    log_in(&address, 2, Some(login("u", OF_HOST))).expect("nobody has applied it");
    assert!(server.apply(&config).contains(&step));
    assert_eq!(first.read(0), [0; BLOCK as usize], "its session goes on");
    assert!(is_failure(log_in(&address, 2, Some(login("u", OF_HOST)))));
    log_in(&address, 2, Some(login("u", "another for u"))).expect("it is the new one");

    // By a signal, too.
    put(directory.path(), "u", OF_HOST);
    server.signal(Signal::HUP);
    server.wait_for("the reload", |_| server.log().matches(&step).count() == 2);
    log_in(&address, 2, Some(login("u", OF_HOST))).expect("it is the old one again");

    // What cannot be used is refused, and what was used is used.
    mode(&directory.path().join("u"), 0o644);
    let refused = server.refuse_apply(&config);
    assert!(refused.contains(&title) && refused.contains("seen mode 0644"), "{refused}");
    log_in(&address, 2, Some(login("u", OF_HOST))).expect("nothing was done");
    mode(&directory.path().join("u"), 0o600);

    // A step that fails takes what it would have brought with it.
    put(directory.path(), "u", "another for u");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let more = format!("{config}[[listener]]\niscsi = \"{}\"\n", taken.local_addr().unwrap());
    assert!(server.refuse_apply(&more).contains("undone"));
    log_in(&address, 2, Some(login("u", OF_HOST))).expect("it was undone");
    put(directory.path(), "u", OF_HOST);

    let other = BOTH.replace("user = \"u\"", "user = \"w\"");
    let shown = server.apply(&configuration(&other, ""));
    assert!(shown.contains("chap u (u), mutual t (t) -> w (u), mutual t (t)"), "{shown}");
    assert!(is_failure(log_in(&address, 2, Some(login("u", OF_HOST)))));
    log_in(&address, 2, Some(login("w", OF_HOST))).expect("it is the new user");
    assert!(server.apply(&configuration("", "")).contains("-> none"));
    assert_eq!(server.status()["iscsi_luns"][0]["chap"], serde_json::Value::Null);
    log_in(&address, 2, None).expect("nobody is asked any more");
    assert!(is_failure(log_in(&address, 2, Some(mutual("t", OF_TARGET)))));
    server.wait_for_log("it insists on a proof, and none is configured here");
    assert_eq!(first.read(0), [0; BLOCK as usize], "its session went on");
    server.stop();
}

#[test]
fn exports_of_a_target_come_and_go_while_its_proof_changes() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "u", OF_HOST);
    put(directory.path(), "w", OF_TARGET);
    let two = |user: &str, lun: u16| {
        let chap = format!("{{ user = \"{user}\", secret_file = \"{user}\" }}");
        let more = format!(
            "[[disk]]\nname = \"d1\"\nuri = \"ram:8MiB\"\n[[volume]]\nname = \"v1\"\ndisks = [\"d1\"]\n\
             [[export]]\nvolume = \"v1\"\niscsi = {{ target = \"{TARGET}\", lun = {lun}, hosts = \"any\", chap = {chap} }}\n"
        );
        configuration(&chap, "") + &more
    };
    let server = Server::configured(directory.path(), &two("u", 1));
    let address = server.address.trim_start_matches("iscsi ").to_owned();
    // The second export goes first, and what is left is shown with the old user.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = format!("[[listener]]\niscsi = \"{}\"\n", taken.local_addr().unwrap());
    assert!(server.refuse_apply(&(two("w", 2) + &listener)).contains("undone"));
    log_in(&address, 1, Some(login("u", OF_HOST))).expect("it was undone");
    // So is what was changed before the last step failed.
    let metrics = format!("[server]\nmetrics = \"{}\"\n", taken.local_addr().unwrap());
    assert!(server.refuse_apply(&(metrics + &two("w", 2))).contains("undone"));
    log_in(&address, 1, Some(login("u", OF_HOST))).expect("it was undone");
    server.apply(&two("w", 2));
    assert!(is_failure(log_in(&address, 1, Some(login("u", OF_HOST)))));
    log_in(&address, 1, Some(login("w", OF_TARGET))).expect("it is the new user");
    server.stop();
}

/// What `check` says of a configuration that it refuses where no server runs.
fn refused(directory: &Path, config: &str) -> String {
    let path = write(directory, config);
    let output = plateway().current_dir(directory).args(["check", &path]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    flat(&output.stderr)
}

#[test]
fn a_secret_that_cannot_be_used_is_refused_at_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let chap = "{ user = \"u\", secret_file = \"u\", mutual = { user = \"t\" } }";
    let config = configuration(chap, "");
    let missing = refused(directory, &config);
    assert!(missing.contains("cannot read the secret u: No such file"), "{missing}");
    put(directory, "u", "eleven byte");
    let short = refused(directory, &config);
    assert!(short.contains("at least 12 bytes, seen 11") && !short.contains("eleven"), "{short}");
    put(directory, "u", OF_HOST);
    mode(&directory.join("u"), 0o640);
    let open = refused(directory, &config);
    assert!(open.contains("seen mode 0640") && open.contains("chmod 600 u"), "{open}");
    assert!(open.contains(":12:"), "not at its line: {open}");
    let start = Server::try_configured(directory, &config, &[]).err().expect("no start");
    assert!(start.contains("seen mode 0640"), "{start}");
    mode(&directory.join("u"), 0o600);
    let nowhere = refused(directory, &config);
    assert!(nowhere.contains("no secret is configured for user t"), "{nowhere}");
    assert!(nowhere.contains("PLATEWAY_CHAP_MUTUAL_SECRET"), "{nowhere}");
    put(directory, "t", OF_HOST);
    let same = refused(directory, &configuration(BOTH, ""));
    assert!(same.contains("expected two secrets, seen the same"), "{same}");
    let listener = refused(directory, &configuration("", &format!("chap = {BOTH}")));
    assert!(listener.contains("expected two secrets") && listener.contains(":3:"), "{listener}");

    let second = "[[disk]]\nname = \"d1\"\nuri = \"ram:8MiB\"\n[[volume]]\nname = \"v1\"\ndisks = [\"d1\"]\n\
         [[export]]\nvolume = \"v1\"\n";
    let second = format!("{second}iscsi = {{ target = \"{TARGET}\", lun = 1, hosts = \"any\" }}\n");
    let disagree = refused(directory, &(configuration(BOTH, "") + &second));
    assert!(disagree.contains("none here, u (u), mutual t (t) in another export"), "{disagree}");
    assert!(disagree.contains(":21:"), "not at its line: {disagree}");
}

fn discover(portal: &str, more: &str) -> Output {
    let asked = format!("iscsi://{portal}{more}");
    plateway().args(["discover", &asked, "--initiator", HOST]).output().expect("it runs")
}

#[test]
fn discovery_has_a_proof_of_its_own_and_tells_what_is_advertised() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (own, mutual) = (put(path, "u", OF_HOST), put(path, "t", OF_TARGET));
    let listener = format!(
        "chap = {BOTH}\nadvertise = \"gateway.example:3261\"\n[[listener]]\niscsi = \"127.0.0.2:0\""
    );
    let config = configuration("", &listener);
    let server = Server::configured(path, &config);
    let listeners = server.status()["listeners"].clone();
    let at = |number: usize| listeners[number]["addresses"][0].as_str().expect("one").to_owned();
    assert_eq!(listeners[0]["chap"], "u, mutual t");
    assert_eq!(listeners[0]["advertise"], "gateway.example:3261");
    let none = discover(&at(0), "");
    assert!(flat(&none.stderr).contains("authentication failure"), "{none:?}");
    server.wait_for_log("was refused: CHAP of discovery: it offers no proof of who it is");
    for more in [
        format!("?secret_file={own}"),
        format!("?secret_file={own}&mutual_user=t&mutual_secret_file={mutual}"),
    ] {
        let found = discover(&format!("u@{}", at(0)), &more);
        let said = text(&found.stdout);
        assert!(found.status.success(), "{}", flat(&found.stderr));
        assert!(said.contains("gateway.example:3261") && !said.contains(&at(0)), "{said}");
        assert!(said.contains(&at(1)), "{said}");
    }
    let wrong = format!("?secret_file={own}&mutual_user=x&mutual_secret_file={mutual}");
    let wrong = discover(&format!("u@{}", at(0)), &wrong);
    assert!(flat(&wrong.stderr).contains("the target calls itself \"t\""), "{wrong:?}");
    // The other listener asks nobody.
    let found = text(&discover(&at(1), "").stdout);
    assert!(found.contains(&at(1)) && found.contains("gateway.example:3261"), "{found}");

    put(path, "u", "another for u");
    let shown = server.apply(&config);
    assert!(shown.contains("~ listener iscsi 127.0.0.1:0: chap: another secret"), "{shown}");
    let found = discover(&format!("u@{}", at(0)), &format!("?secret_file={own}"));
    assert!(found.status.success(), "{}", flat(&found.stderr));
    server.stop();
}

#[test]
fn what_a_listener_says_changes_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let own = put(path, "u", OF_HOST);
    let server = Server::configured(path, &configuration("", ""));
    let address = server.address.trim_start_matches("iscsi ").to_owned();
    let mut session = log_in(&address, 1, None).expect("nobody is asked");
    let chap = "chap = { user = \"u\", secret_file = \"u\" }";
    let shown =
        server.apply(&configuration("", &format!("{chap}\nadvertise = \"192.0.2.1:3260\"")));
    assert!(shown.contains("advertise none -> 192.0.2.1:3260 chap none -> u (u)"), "{shown}");
    assert!(!discover(&address, "").status.success());
    let found = discover(&format!("u@{address}"), &format!("?secret_file={own}"));
    assert!(text(&found.stdout).contains("192.0.2.1:3260"), "{found:?}");
    let config = server.ask(&["config"]);
    assert!(config.contains(chap) && config.contains("advertise = \"192.0.2.1:3260\""), "{config}");
    server.apply(&configuration("", ""));
    assert!(text(&discover(&address, "").stdout).contains(&address));
    assert_eq!(session.read(0), [0; BLOCK as usize]);
    server.stop();
}

#[test]
fn our_initiator_and_our_target_prove_each_other_who_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (server, address) = guarded(path);
    let (own, mutual) = (path.join("u"), path.join("t"));
    let disk = format!(
        "iscsi://u@{address}/{TARGET}/0?initiator={HOST}&secret_file={}&mutual_user=t&mutual_secret_file={}",
        own.display(),
        mutual.display()
    );
    let front = path.join("front");
    fs::create_dir(&front).unwrap();
    // The quick way, with a secret of the environment.
    let mut command = plateway();
    command.env("PLATEWAY_CHAP_SECRET", "of the front's hosts");
    let args = [&disk, "--iscsi", "127.0.0.1:0", "--hosts", "any", "--chap-user", "w"];
    let served = Server::try_start_by(command, &front, "b", &args).expect("it starts");
    let through = served.address.trim_start_matches("iscsi ").to_owned();
    assert!(is_failure(log_in(&through, 1, Some(login("w", OF_HOST)))));
    let right = Some(login("w", "of the front's hosts"));
    let mut session = log_in(&through, 1, right).expect("it is right");
    assert_eq!(session.read(0), [0; BLOCK as usize]);
    served.stop();

    let measure = |disk: &str| {
        let mut bench = plateway();
        bench.args(["bench", disk, "--rw", "randread", "--bs", "4k", "--time", "50ms"]);
        bench.output().expect("it runs")
    };
    let right = measure(&disk);
    assert!(right.status.success(), "{}", flat(&right.stderr));
    let wrong = measure(&disk.replace("mutual_user=t", "mutual_user=x"));
    assert!(flat(&wrong.stderr).contains("the target calls itself \"t\""), "{wrong:?}");
    server.stop();
}

#[test]
fn the_quick_way_takes_a_file_of_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let file = put(directory.path(), "secret", OF_HOST);
    let args = ["ram:8MiB", "--iscsi", "127.0.0.1:0", "--hosts", "any"];
    let args = [&args[..], &["--chap-user", "u", "--chap-secret-file", &file]].concat();
    let server = Server::start(directory.path(), "a", &args);
    let address = server.address.trim_start_matches("iscsi ").to_owned();
    log_in(&address, 1, Some(login("u", OF_HOST))).expect("it is right");
    assert!(is_failure(log_in(&address, 1, None)));
    server.stop();
}

/// What only one is to know is one's own.
#[test]
fn a_secret_of_a_host_that_others_have_too_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    put(directory, "u", OF_HOST);
    put(directory, "w", OF_TARGET);
    let host = |name: &str, file: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\niscsi = \"iqn.2026-11.net.example:{name}\"\n\
             iscsi_chap = {{ user = \"{name}\", secret_file = \"{file}\" }}\n"
        )
    };
    let own = "{ user = \"u\", secret_file = \"u\" }";
    let said = |hosts: &str| {
        let path = write(directory, &(configuration(own, "") + hosts));
        let output = plateway().current_dir(directory).args(["check", &path]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        flat(&[output.stdout, output.stderr].concat())
    };
    let with_target = said(&host("web1", "u"));
    assert!(with_target.contains("iscsi_chap of host web1 has"), "{with_target}");
    let two = said(&(host("web1", "w") + &host("web2", "w")));
    assert!(
        two.contains("iscsi_chap of host web2 has") && two.contains("as host web1 has"),
        "{two}"
    );
    let apart = said(&host("web1", "w"));
    assert!(!apart.contains("iscsi_chap of"), "{apart}");
}
