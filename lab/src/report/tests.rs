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
    // Its look is that of the web page and of all other reports.
    let look = include_str!("../../../serve/assets/look.css");
    for text in [look, "<body class=\"report\">", "<table class=\"measures\">"] {
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

#[test]
fn a_figure_over_time_is_one_line_with_its_name() {
    let svg = line_plot("RSS, MiB", "a run", vec![(0.0, 10.0), (5.0, 20.5), (10.0, 0.25)]).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("RSS, MiB") && svg.contains("seconds"), "{svg}");
    let (r, g, b) = colour(0);
    assert_eq!(svg.matches(&format!("#{r:02X}{g:02X}{b:02X}")).count(), 1, "{svg}");
    assert!(line_plot("nothing", "a run", Vec::new()).unwrap().contains("nothing"));
}
