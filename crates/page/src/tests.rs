//! Of two result files: what is on their pages, and which files have none.
//!
//! `three-roads.json` is of a real run, shortened to what is drawn. `made-up.json` never ran: it has
//! every kind of verdict, pictures of one axis and of two, failures, and markup where a name could be.

use lab::plan::Measure;
use serde_json::{Value, json};

use super::*;

fn three_roads() -> Value {
    serde_json::from_str(include_str!("../tests/three-roads.json")).expect("JSON")
}

fn made_up() -> Value {
    serde_json::from_str(include_str!("../tests/made-up.json")).expect("JSON")
}

fn titles(page: &Page) -> Vec<&str> {
    page.figures.iter().map(|figure| figure.title.as_str()).collect()
}

#[test]
fn a_run_has_all_its_figures() {
    let page = page(&three_roads()).expect("a result file");
    let over = "over lan, 4KiB randread, depth 32";
    let expected = [
        format!("IOPS {over}"),
        format!("Latency {over}"),
        format!("Operations a second {over}, window by window"),
        format!("Processor time an operation {over}"),
        format!("On the wire {over}"),
    ];
    assert_eq!(titles(&page), expected);
    for Figure { name, svg, csv, .. } in &page.figures {
        assert!(page.html.contains(&format!("<figure id=\"{name}\"")), "{name}");
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{name}");
        assert!(csv.lines().count() > 1, "{name}: {csv}");
    }
}

#[test]
fn verdicts_stand_in_the_picture_as_the_lab_says_them() {
    let three = page(&three_roads()).expect("a result file");
    for words in ["slower by 46% (36% to 54%)", "slower by 12% (0.20% to 23%)"] {
        assert!(three.figures[0].svg.contains(&format!(">{words}</text>")), "{words}");
        assert!(three.html.contains(&format!("<b>{words}</b>")), "{words}");
    }
    let made_up = page(&made_up()).expect("a result file");
    for words in ["equal within 10%", "no difference shown", "undecided: needs about 12 more"] {
        assert!(made_up.html.contains(words), "{words}");
    }
    assert!(made_up.html.contains("exploratory: aoe against nvme"));
}

#[test]
fn the_shaded_margin_is_that_of_the_plan() {
    let page = page(&three_roads()).expect("a result file");
    assert!(page.figures[0].svg.contains("shaded: equal within 25%"));
}

/// The real run, had it asked for something else than whether there is a difference.
fn asked(of: &str, asked: &str, change: impl Fn(&mut Value)) -> Page {
    let mut file = three_roads();
    let plan = file["plan"].as_str().expect("a plan").replace("of = \"iops\"", asked);
    file["plan"] = plan.into();
    let group = &mut file["results"]["groups"][0];
    for column in group["columns"].as_array_mut().expect("columns") {
        column["measure"] = of.into();
    }
    let findings = group["analysis"]["findings"].as_array_mut().expect("findings");
    for finding in findings {
        let name = finding["name"].as_str().expect("a name");
        let measure: Measure = of.parse().expect("a measure");
        finding["name"] = name.replace("IOPS", &measure.to_string()).into();
        change(finding);
    }
    page(&file).expect("a result file")
}

#[test]
fn a_bound_is_a_line_across_its_row_where_the_axis_has_it() {
    let bound = |of: &str, bound: &str, value: f64| {
        asked(of, &format!("of = \"{of}\"\n{bound} = {value}"), |finding| {
            finding["bound"] = json!({ bound: value });
            let times = json!({ "low": 0.5, "high": 0.6, "level": 0.95 });
            finding["verdict"] = json!({ "kind": "not_held", "times": times });
        })
    };
    let page = bound("iops", "at-least", 0.9);
    let figure = &page.figures[0].svg;
    assert!(figure.contains(">at least 0.9 times: not held (0.500 to 0.600)</text>"), "{figure}");
    assert!(!figure.contains("shaded: equal within"), "nobody asks who is equal");
    assert!(page.html.contains("A line across a row is the bound that was asked for."));
    // What is at most 1.111 times as much of a latency is at least 0.9 times as fast.
    let at = |page: &Page| {
        let line = page.figures[0].svg.lines().find(|line| line.contains("class=\"bound\""));
        let line = line.expect("a line").split("x=\"").nth(1).expect("a place");
        line.split('"').next().expect("a number").parse::<f64>().expect("a number")
    };
    let turned = bound("p99", "at-most", 1.0 / 0.9);
    assert!((at(&page) - at(&turned)).abs() < 0.2, "{} {}", at(&page), at(&turned));
    assert!((at(&page) - at(&bound("iops", "at-least", 0.8))).abs() > 5.0);
    let none = super::page(&three_roads()).expect("a result file");
    assert!(!none.figures[0].svg.contains("class=\"bound\""));
}

#[test]
fn what_is_spent_costs_more_or_less_also_on_the_axis() {
    let cost =
        asked("cpu-per-op", "of = \"cpu-per-op\"", |finding| finding["is_cost"] = true.into());
    let figure = &cost.figures[0].svg;
    // 0.5413 times as fast is 1.847 times as much.
    assert!(figure.contains(">costs more by 85% (56% to 119%)</text>"), "{figure}");
    for words in ["How much more or less it costs", "← costs more", "costs less →"] {
        assert!(figure.contains(words), "{words}");
    }
    assert!(
        !figure.contains("slower") && figure.contains(": +56% to +119%, an interval"),
        "{figure}"
    );
    let place = |figure: &str, tick: &str| {
        let text = figure.lines().find(|line| line.contains(&format!(">{tick}</text>")));
        let text = text.unwrap_or_else(|| panic!("{tick}\n{figure}")).split("x=\"").nth(1);
        text.expect("a place")
            .split('"')
            .next()
            .expect("a number")
            .parse::<f64>()
            .expect("a number")
    };
    assert!(place(figure, "+100%") < place(figure, "equal"), "twice as much is on the left");
}

#[test]
fn a_plan_that_is_not_understood_any_more_is_still_drawn() {
    let mut kept = three_roads();
    kept["plan"] = json!("of = another = kind");
    let page = page(&kept).expect("a result file");
    assert_eq!(page.figures.len(), 5);
    let svg = &page.figures[0].svg;
    assert!(svg.contains("IOPS of iscsi against nvme over lan") && !svg.contains("shaded"));
}

#[test]
fn pictures_are_heat_maps_of_two_axes_and_lines_of_one() {
    let page = page(&made_up()).expect("a result file");
    let titles = titles(&page);
    let wanted = ["Depth by jobs: IOPS", "Depth by jobs: p99 latency", "Block size: IOPS"];
    let figure = |title: &str| {
        let place = titles.iter().position(|other| *other == title).expect(title);
        &page.figures[place].svg
    };
    // Two systems, three depths, three numbers of jobs.
    assert_eq!(figure(wanted[0]).matches("class=\"on-").count(), 18);
    assert_eq!(figure(wanted[1]).matches("class=\"on-").count(), 18);
    assert_eq!(figure(wanted[2]).matches("thick\"/>").count(), 6);
    assert!(figure(wanted[0]).contains("*</text>"), "a cell that never became steady has a star");
}

#[test]
fn nothing_of_the_file_becomes_markup() {
    let page = page(&made_up()).expect("a result file");
    for markup in ["<script", "<img", "<i>", "<kernel>", "<dropped>", "<ended>"] {
        assert!(!page.html.contains(markup), "{markup}");
        assert!(page.figures.iter().all(|figure| !figure.svg.contains(markup)), "{markup}");
    }
    assert!(page.html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "it is told as text");
    assert!(page.html.contains("never-run &lt;b&gt;&amp;amp;&lt;/b&gt;"));
}

#[test]
fn a_page_names_no_place_to_load_from() {
    for kept in [three_roads(), made_up()] {
        let html = page(&kept).expect("a result file").html;
        for way in
            ["src=\"", "url(", "@import", "http:", "https:", "href=\"/", "<script", "srcset=\""]
        {
            assert!(!html.contains(way), "{way}");
        }
        let elsewhere = |part: &&str| !part.starts_with("data:");
        let links: Vec<&str> = html.split("href=\"").skip(1).filter(elsewhere).collect();
        assert_eq!(links, Vec::<&str>::new());
    }
}

#[test]
fn failures_and_notes_are_told() {
    let html = page(&made_up()).expect("a result file").html;
    assert!(html.contains("the target &lt;ended&gt; with status 1: &quot;no &amp; more&quot;"));
    assert!(html.contains("refused: &lt;img src"));
    assert!(html.contains("IOPS of aoe: the machine moved, and all systems with it"));
    let html = page(&three_roads()).expect("a result file").html;
    assert!(html.contains("a thread of the bench was busy for 100% of the window"));
}

#[test]
fn every_figure_has_its_provenance_and_a_name_of_its_own() {
    let page = page(&made_up()).expect("a result file");
    let told =
        "plateway 0.1.0 · Linux 6.1 &lt;kernel&gt; · A CPU &amp; more · near CPU 1, far CPU 0";
    assert_eq!(page.html.matches(told).count(), page.figures.len() + 1, "and once above all");
    let mut names: Vec<&str> = page.figures.iter().map(|figure| figure.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), page.figures.len());
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let refused = |kept: Value| page(&kept).expect_err("it is no result file").to_string();
    assert_eq!(refused(json!({})), "expected a result file of the lab, seen no schema_version");
    assert!(refused(json!({ "schema_version": 2 })).ends_with("expected 1, seen 2"));
    assert!(refused(json!([])).ends_with("seen no schema_version"));
    assert!(refused(json!({ "schema_version": 1 })).contains("missing field"));
    let mut kept = three_roads();
    kept["results"]["groups"][0]["columns"][1]["system"] = json!(4);
    assert!(refused(kept).contains("expected the place of one of 4 systems, seen 4"));
    let mut kept = three_roads();
    kept["results"]["groups"][0]["rounds"][3] = json!([1.0]);
    assert!(refused(kept).contains("expected 4 values of each round, seen 1"));
}

#[test]
fn a_value_that_is_none_is_refused() {
    let refused = |place: &str, value: Value| {
        let mut kept = three_roads();
        *kept.pointer_mut(place).expect(place) = value;
        page(&kept).expect_err("it cannot be drawn").to_string()
    };
    let finding = "/results/groups/0/analysis/findings/0";
    for none in [json!(0.0), json!(-1.0)] {
        let error = refused(&format!("{finding}/estimate/ratio"), none.clone());
        assert!(error.contains(&format!("`{none}`, expected a ratio above 0")), "{error}");
    }
    let error = refused(&format!("{finding}/verdict/interval/high"), json!("1.5"));
    assert!(error.contains("string \"1.5\", expected f64"), "{error}");
    assert!(refused("/results/groups/0/rounds/0/0", json!(null)).contains("null, expected f64"));
    let error = refused("/results/groups/0/columns/0/measure", json!("speed"));
    assert!(error.contains("expected a measure, one of iops, "), "{error}");
    for place in ["null", "moved/0/column/system"] {
        let error = refused(&format!("/results/groups/0/{place}"), json!(4));
        assert!(error.ends_with("expected the place of one of 4 systems, seen 4"), "{error}");
    }
}

#[test]
fn what_a_core_carries_and_a_path_loses_is_drawn_where_it_was_seen() {
    let wire = |kept: &Value| {
        let page = page(kept).expect("a result file");
        let is_wire = |figure: &&Figure| figure.title.starts_with("On the wire");
        let figure = page.figures.iter().find(is_wire).expect("a figure of the wire");
        (figure.svg.clone(), figure.csv.clone())
    };
    let mut kept = made_up();
    let (svg, csv) = wire(&kept);
    assert!(
        !svg.contains("in the core") && csv.starts_with("system,wire_bytes_per_op,frames_per_op\n")
    );
    for trial in kept["trials"].as_array_mut().expect("trials") {
        if trial["cell"].as_str().is_some_and(|cell| cell.starts_with("aoe ")) {
            trial["core_bytes_per_op"] = json!(4790.5);
            trial["lost_share"] = json!(0.0125);
        }
    }
    let (svg, csv) = wire(&kept);
    for words in
        ["Bytes an operation in the core", "Frames lost of a hundred", "aoe: 1.25", "aoe: 4790"]
    {
        assert!(svg.contains(words), "{words}");
    }
    let row = csv.lines().find(|line| line.starts_with("aoe,")).expect("a row of AoE");
    assert!(row.ends_with(",4790.5,1.25"), "{row}");
    assert!(csv.lines().any(|line| line.starts_with("nvme,") && line.ends_with(",,")), "{csv}");
}

/// Whatever was not measured is not drawn, and strange values break nothing.
#[test]
fn a_run_that_measured_little_has_a_page() {
    let mut kept = three_roads();
    kept["trials"] = json!([]);
    assert_eq!(page(&kept).expect("a result file").figures.len(), 1);
    let group = &mut kept["results"]["groups"][0];
    group["rounds"] = json!([]);
    group["analysis"]["findings"] = json!([{ "name": "a", "primary": true, "verdict": { "kind": "withheld", "reason": "failed" } }]);
    let drawn = page(&kept).expect("a result file");
    assert!(drawn.html.contains("no verdict: a trial of it failed again and again"));
    kept["results"]["groups"] = json!([]);
    assert_eq!(page(&kept).expect("a result file").figures.len(), 0);
    for strange in [json!(0.0), json!(-1.0), json!(1e308), json!(5e-324)] {
        let mut kept = made_up();
        for trial in kept["trials"].as_array_mut().expect("trials") {
            for measure in ["iops", "p50", "p99", "latency-mean"] {
                trial["measures"][measure] = strange.clone();
            }
            trial["windows"] = json!([strange, strange]);
        }
        for cell in kept["results"]["pictures"].as_array_mut().expect("pictures") {
            cell["measures"]["iops"] = strange.clone();
        }
        for round in kept["results"]["groups"][0]["rounds"].as_array_mut().expect("rounds") {
            round[0] = strange.clone();
        }
        // Of a ratio what is not above 0 is refused before anything is drawn.
        if strange.as_f64() > Some(0.0) {
            kept["results"]["groups"][0]["analysis"]["findings"][0]["estimate"]["ratio"] = strange;
        }
        let html = page(&kept).expect("a result file").html;
        assert!(!html.contains("NaN") && !html.contains("\"inf"), "a place that is none");
    }
}
