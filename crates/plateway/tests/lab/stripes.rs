//! Several disks as one system: served, reached by the near end itself, and below a file system; and what
//! reads and writes of a mix come to apart.

use super::*;

/// Each disk has 4 MiB, and does one thing after the other, 5 ms each.
const DISK: &str = "model:ssd?channels=1&service_us=5000&service_write_us=5000,ram:4MiB";

fn picture(systems: &str) -> String {
    format!(
        "name = \"stripes\"\nshared = true\nwindow = \"200ms\"\nwarm-up = \"100ms\"\n{systems}\n\
         [load]\npattern = \"randrw=75\"\ndepth = 16\nsize = \"2MiB\"\n"
    )
}

/// What a plan's trials came to, by the names of their cells; none where this machine lacks what it takes.
fn trials(plan: &str) -> Option<Vec<Value>> {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.toml"), plan).unwrap();
    let output = run(directory.path(), &["run", "a.toml"]);
    let why = flat(&output.stderr);
    // Of a file system what is missing is told by the system's name.
    if why.contains("network namespaces need root") || why.contains("ext4: file-system: ") {
        testkit::skipped(why);
        return None;
    }
    assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
    let kept = kept(&directory.path().join("a.result.json"));
    Some(kept["trials"].as_array().unwrap().clone())
}

fn of<'t>(trials: &'t [Value], words: &[&str]) -> &'t Value {
    let is_it = |trial: &&Value| {
        let cell = trial["cell"].as_str().unwrap();
        words.iter().all(|word| cell.contains(word))
    };
    trials.iter().find(is_it).unwrap_or_else(|| panic!("no {words:?}: {trials:?}"))
}

fn measure(trial: &Value, word: &str) -> f64 {
    trial["measures"][word].as_f64().unwrap_or_else(|| panic!("no {word}: {trial}"))
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn several_disks_are_one_stripe_local_and_served_each_with_its_own_model() {
        let systems = format!(
            "[[system]]\nname = \"near\"\ndisk = \"{DISK}\"\n\
         [[system]]\nname = \"far\"\nserve = {{ protocol = \"nvme\", disk = \"{DISK}\" }}\n\
         [[path]]\nname = \"lan\"\n"
        );
        let plan = picture(&systems)
            + "[[picture]]\nname = \"one\"\nsystems = [\"near\", \"far\"]\n\
           [[picture]]\nname = \"four\"\nsystems = [\"near\", \"far\"]\ndisks = 4\nsize = \"8MiB\"\n";
        let Some(trials) = trials(&plan) else { return };
        assert_eq!(trials.len(), 4, "{trials:?}");
        for system in ["near", "far over lan"] {
            let (one, four) = (of(&trials, &[system, "2MiB"]), of(&trials, &[system, "4 disks"]));
            // No disk has 8 MiB of its own.
            assert_eq!(four["bench"]["range_bytes"], 8 << 20, "{four}");
            // What one disk with one channel does at most, and four of them, with what a window's edge cuts off.
            assert!(measure(one, "iops") < 200.0 * 1.2, "{one}");
            assert!(measure(four, "iops") < 800.0 * 1.2, "{four}");
            assert!(measure(four, "iops") > measure(one, "iops"), "{four}");
            for trial in [one, four] {
                let sides = measure(trial, "read-iops") + measure(trial, "write-iops");
                assert!((sides - measure(trial, "iops")).abs() < 1e-6, "{trial}");
                assert!(measure(trial, "read-iops") > measure(trial, "write-iops"), "{trial}");
                assert!(measure(trial, "read-p50") >= 4.9e6, "{trial}");
            }
        }
    }

    #[test]
    fn a_file_system_is_made_on_a_stripe_too() {
        let systems =
            "[[system]]\nname = \"ext4\"\ndisk = \"ram:8MiB\"\ndisks = 4\nfile-system = \"ext4\"\n";
        let plan = picture(systems)
            + "[[picture]]\nname = \"files\"\nsystems = [\"ext4\"]\nsize = \"16MiB\"\n";
        let Some(trials) = trials(&plan) else { return };
        let trial = of(&trials, &["ext4"]);
        assert_eq!(trial["file_system"]["type"], "ext4", "{trial}");
        assert_eq!(trial["bench"]["range_bytes"], 16 << 20, "{trial}");
    }
}
