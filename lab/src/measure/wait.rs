//! The longest wait for savings in a series whose attainable savings change all the time.

use std::collections::VecDeque;

use super::series::RunSeries;

/// Saved and attainable bytes from a moment on.
struct SavingsEvent {
    at: f64,
    saved: f64,
    attainable: f64,
}

/// The longest time in which always less than `part` was saved of what could be saved all that time, in seconds. At the end of the
/// run it may still last.
///
/// `None` if the part was never saved.
pub fn longest_wait(series: &RunSeries, part: f64) -> Option<f64> {
    let events = events(series);
    let begin = events.iter().position(|event| event.attainable > 0.0)?;
    // The window of events that ends with the present one; the places of its greatest `saved` and of its least `attainable` come first.
    let (mut start, mut longest) = (begin, 0.0_f64);
    let (mut most, mut least) = (VecDeque::<usize>::new(), VecDeque::<usize>::new());
    for (place, event) in events.iter().enumerate().skip(begin) {
        push(&mut most, place, |other| events[other].saved <= event.saved);
        push(&mut least, place, |other| events[other].attainable >= event.attainable);
        while let (Some(&saved), Some(&attainable)) = (most.front(), least.front())
            && events[saved].saved >= part * events[attainable].attainable
        {
            start += 1;
            [&mut most, &mut least].into_iter().for_each(|places| drop_before(places, start));
        }
        if let Some(first) = events.get(start).filter(|_| start <= place) {
            let end = events.get(place + 1).map_or(event.at, |next| next.at);
            longest = longest.max(end - first.at);
        }
    }
    (start > begin).then_some(longest)
}

/// Returns all samples and all changes of the attainable savings, in order.
fn events(series: &RunSeries) -> Vec<SavingsEvent> {
    let mut steps = series.attainable.iter().peekable();
    let (mut saved, mut attainable) = (0.0, 0.0);
    let mut events = Vec::with_capacity(series.points.len() + series.attainable.len());
    for point in &series.points {
        while let Some(step) = steps.next_if(|step| step.at <= point.at) {
            attainable = step.bytes as f64;
            if step.at < point.at {
                events.push(SavingsEvent { at: step.at, saved, attainable });
            }
        }
        saved = point.saved_bytes as f64;
        events.push(SavingsEvent { at: point.at, saved, attainable });
    }
    events
}

/// Adds a place at the end, without those before it that it outdoes.
fn push(places: &mut VecDeque<usize>, place: usize, is_outdone: impl Fn(usize) -> bool) {
    while places.back().is_some_and(|&other| is_outdone(other)) {
        places.pop_back();
    }
    places.push_back(place);
}

fn drop_before(places: &mut VecDeque<usize>, start: usize) {
    while places.front().is_some_and(|&place| place < start) {
        places.pop_front();
    }
}
