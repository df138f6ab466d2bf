//! bonnie++: what it is asked for, and the line of values that it prints.
//!
//! In: the size of its file, and in the end its standard output with `-q`, one line of values with commas between
//! (bon_csv2txt(1), format 1.98). Out: rates of six tests, in bytes a second, and seeks a second. A test that took less than half a second
//! has plus signs in place of a value, and none here. Errors: what was expected of a field, and what was seen.

/// The format of the line, which its first field says.
const FORMAT: &str = "1.98";
/// How many fields a line has at least: those of the tests of one file.
const FIELDS_MIN: usize = 21;
/// What no machine reaches, in KiB a second.
const RATE_MAX: f64 = 1e15;
/// What bonnie++ counts bytes in.
const KIB: f64 = 1024.0;
/// Bytes that are read or written at once; its own default.
pub const CHUNK_BYTES: u64 = 8 << 10;
/// What it takes sizes in.
pub const UNIT_BYTES: u64 = 1 << 20;

/// What it is asked for: a file of so many bytes in the folder where it is started, of whole MiB, by root, without
/// the test of many small files, and without a look at how much memory there is. It seeks as often as the file has chunks.
pub fn arguments(size: u64, seed: u64) -> Vec<String> {
    let seeks = (size / CHUNK_BYTES).max(1);
    let size = format!("{}M:{CHUNK_BYTES}:{seeks}", size / UNIT_BYTES);
    // It reads a number of C's.
    let seed = (seed % (1 << 31)).to_string();
    ["-q", "-d", ".", "-u", "root", "-m", "lab", "-r", "0", "-n", "0", "-s", &size, "-z", &seed]
        .map(str::to_owned)
        .to_vec()
}

/// What it told of a run; a test that was over too soon has nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// As it calls itself.
    pub version: String,
    /// Bytes a second: with a system call for each byte ...
    pub char_write: Option<f64>,
    /// ... in chunks ...
    pub write: Option<f64>,
    /// ... and read and written again, chunk by chunk.
    pub rewrite: Option<f64>,
    pub char_read: Option<f64>,
    pub read: Option<f64>,
    /// A chunk anywhere is read, and one of ten written again: so many a second.
    pub seeks: Option<f64>,
}

impl Told {
    /// Reads what it printed, of a file of so many bytes.
    pub fn parse(printed: &str, size: u64) -> Result<Told, String> {
        let mut lines = printed.lines().filter(|line| !line.trim().is_empty());
        let (first, second) = (lines.next(), lines.next());
        let (Some(line), None) = (first, second) else {
            let seen = first
                .map_or("none".to_owned(), |_| format!("{:?} as well", second.unwrap_or_default()));
            return Err(format!("bonnie++: expected one line of values, seen {seen}"));
        };
        let fields: Vec<&str> = line.trim().split(',').collect();
        if fields[0] != FORMAT {
            return Err(format!(
                "bonnie++: expected values of format {FORMAT}, seen {:?}",
                fields[0]
            ));
        }
        if fields.len() < FIELDS_MIN {
            let seen = fields.len();
            return Err(format!("bonnie++: expected {FIELDS_MIN} values at least, seen {seen}"));
        }
        let asked = format!("{}M", size / UNIT_BYTES);
        if fields[5] != asked {
            return Err(format!("bonnie++: expected a file of {asked}, seen {:?}", fields[5]));
        }
        let rate = |at: usize, called: &str| rate(fields[at], called);
        let bytes = |at: usize, called: &str| rate(at, called).map(|kib| kib.map(|kib| kib * KIB));
        Ok(Told {
            version: format!("bonnie++ {}", fields[1]),
            char_write: bytes(9, "putc")?,
            write: bytes(11, "put_block")?,
            rewrite: bytes(13, "rewrite")?,
            char_read: bytes(15, "getc")?,
            read: bytes(17, "get_block")?,
            seeks: rate(19, "seeks")?,
        })
    }
}

/// A rate, or the plus signs that stand for none.
fn rate(field: &str, called: &str) -> Result<Option<f64>, String> {
    let is_none = !field.is_empty() && field.bytes().all(|byte| byte == b'+');
    if is_none {
        return Ok(None);
    }
    let is_number = field.starts_with(|c: char| c.is_ascii_digit())
        && field.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value =
        field.parse::<f64>().ok().filter(|rate| is_number && *rate > 0.0 && *rate < RATE_MAX);
    match value {
        Some(value) => Ok(Some(value)),
        None => Err(format!(
            "bonnie++: {called}: expected a rate above 0 and below {RATE_MAX:e}, or +++++, seen {field:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As bonnie++ 2.00a printed it, with the rates of a disk where it had plus signs.
    const BUSY: &str = "1.98,2.00a,lab,1,1795923093,64M,,8192,5,717,16,112030,31,60417,12,1110,18,104221,9,923.4,3,,,,,,,,,,,,,,,,,,42096us,4093us,10730us,49372us,24064us,36116us,,,,,,\n";
    /// As it printed it of a folder in memory, where four tests were over too soon.
    const MEMORY: &str = "1.98,2.00a,lab,1,1795923093,64M,,8192,5,717,16,+++++,+++,+++++,+++,1110,18,+++++,+++,+++++,+++,,,,,,,,,,,,,,,,,,42096us,4093us,10730us,49372us,24064us,36116us,,,,,,\n";
    const SIZE: u64 = 64 << 20;

    #[test]
    fn every_test_has_its_rate_in_bytes() {
        let told = Told::parse(BUSY, SIZE).unwrap();
        let expected = Told {
            version: "bonnie++ 2.00a".to_owned(),
            char_write: Some(717.0 * 1024.0),
            write: Some(112_030.0 * 1024.0),
            rewrite: Some(60_417.0 * 1024.0),
            char_read: Some(1110.0 * 1024.0),
            read: Some(104_221.0 * 1024.0),
            seeks: Some(923.4),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn what_was_over_too_soon_has_no_rate() {
        let told = Told::parse(MEMORY, SIZE).unwrap();
        assert_eq!((told.char_write, told.char_read), (Some(734_208.0), Some(1_136_640.0)));
        assert_eq!([told.write, told.rewrite, told.read, told.seeks], [None; 4]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let refused = |printed: &str| Told::parse(printed, SIZE).unwrap_err();
        assert_eq!(refused(""), "bonnie++: expected one line of values, seen none");
        assert!(
            refused(&format!("{BUSY}{MEMORY}"))
                .starts_with("bonnie++: expected one line of values, seen \"1.98,")
        );
        assert_eq!(
            refused(&BUSY.replacen("1.98", "1.97", 1)),
            "bonnie++: expected values of format 1.98, seen \"1.97\""
        );
        assert_eq!(refused("1.98,2.00a,lab"), "bonnie++: expected 21 values at least, seen 3");
        assert_eq!(
            refused(&BUSY.replace("64M", "65M")),
            "bonnie++: expected a file of 64M, seen \"65M\""
        );
        for (wrong, field) in [
            ("923.4", ""),
            ("923.4", "-3"),
            ("923.4", "nan"),
            ("923.4", "0"),
            ("923.4", "1e9"),
            ("717", "+7"),
            ("717", "1000000000000000"),
        ] {
            let why = refused(&BUSY.replace(&format!(",{wrong},"), &format!(",{field},")));
            assert!(
                why.ends_with(&format!(
                    "expected a rate above 0 and below 1e15, or +++++, seen {field:?}"
                )),
                "{why}"
            );
        }
    }

    #[test]
    fn it_is_asked_for_whole_mebibytes_and_a_seek_for_each_chunk() {
        let asked = arguments(SIZE, 1 << 31 | 7);
        assert!(asked.windows(2).any(|two| two == ["-s", "64M:8192:8192"]), "{asked:?}");
        assert_eq!(asked.last().unwrap(), "7");
    }
}
