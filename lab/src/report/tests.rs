use super::*;
use crate::results::tests::made_up;

#[test]
fn the_page_holds_everything_and_needs_nothing() {
    let page = page(&made_up()).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert_eq!(page.matches("</svg>").count(), 3);
    for text in ["x &lt; y", "reference", "100.0 %", "99.0 %", "never", "ksmd, % of a CPU", "GiB-seconds saved"] {
        assert!(page.contains(text), "{text}");
    }
    // The page fetches nothing and runs no script.
    for text in ["<script", "<link", "src=", "url(", "@import", "NaN", "inf\""] {
        assert!(!page.contains(text), "{text}");
    }
}

#[test]
fn every_competitor_has_its_line_in_its_colour() {
    let results = made_up();
    let scenario = &results.scenarios[0];
    let plots = [plots::saved(scenario).unwrap(), plots::cpu(scenario).unwrap(), plots::plane(scenario).unwrap()];
    for place in 0..scenario.competitors.len() {
        let (r, g, b) = colour(place);
        let hex = format!("#{r:02X}{g:02X}{b:02X}");
        for svg in &plots {
            assert!(svg.contains(&hex), "{hex}");
        }
    }
}

#[test]
fn the_plane_is_drawn_as_it_was() {
    let svg = plots::plane(&made_up().scenarios[0]).unwrap();
    let dots: Vec<_> = svg.lines().filter(|line| line.starts_with("<circle")).collect();
    insta::assert_snapshot!(dots.join("\n"));
}

#[test]
fn a_scenario_in_which_nothing_happens_can_be_drawn() {
    let mut results = made_up();
    for competitor in &mut results.scenarios[0].competitors {
        competitor.runs.clear();
    }
    results.scenarios[0].attainable_bytes = 0;
    assert_eq!(page(&results).unwrap().matches("<svg").count(), 3);
}
