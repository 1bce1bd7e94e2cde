//! The actions of keys and the mouse.

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::app::{FilterPrompt, TopApp, TopView};
use super::event::TopRequest;
use super::layout;
use super::list::RowKey;
use super::replay::JUMP;

/// Greatest length of a filter in bytes.
const LONGEST_FILTER: usize = 1000;

/// The keys with their actions, as the help page shows them.
pub(super) const KEYS: [(&str, &str); 17] = [
    ("1, 2, 3, 4 or Tab", "go to guests, decisions, balance, charts"),
    ("Up, Down, j, k", "choose a guest, or scroll a page"),
    ("PgUp, PgDn, Home, End", "the same in large steps"),
    ("Enter", "open the page of the chosen guest; of a group, list its guests"),
    ("w", "find out why the memory of this guest does not merge (some seconds; reads only)"),
    ("Left, Right", "order by the column before or after"),
    ("r", "reverse the order"),
    ("g", "sum guests up by kind, program, user, cgroup, domain; then each by itself again"),
    ("/", "filter: a piece of text, or an expression such as saved>100MiB and kind=qemu"),
    ("Esc", "go back; in the list, take the filter away"),
    ("Space", "hold the screen, or let it go on"),
    ("t, T, ], [", "with --since or --at: go a moment forth or back, or ten"),
    ("?", "this page"),
    ("q, Ctrl-C", "end"),
    ("", ""),
    ("Click", "with --mouse: on a heading orders by it, on a guest chooses it"),
    ("Wheel", "with --mouse: scrolls"),
];

impl TopApp {
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<TopRequest> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if has_control && key.code == KeyCode::Char('c') {
            return Some(TopRequest::End);
        }
        if self.prompt.is_some() {
            self.type_filter(key.code, has_control);
            return None;
        }
        match key.code {
            KeyCode::Char('q') => return Some(TopRequest::End),
            KeyCode::Char('1') => self.go(TopView::Guests),
            KeyCode::Char('2') => self.go(TopView::Decisions),
            KeyCode::Char('3') => self.go(TopView::Balance),
            KeyCode::Char('4') => self.go(TopView::Charts),
            KeyCode::Char('t') => return self.step_replay(1),
            KeyCode::Char('T') => return self.step_replay(-1),
            KeyCode::Char(']') => return self.step_replay(JUMP),
            KeyCode::Char('[') => return self.step_replay(-JUMP),
            KeyCode::Tab => self.go(match self.view {
                TopView::Guests | TopView::Guest(_) => TopView::Decisions,
                TopView::Decisions => TopView::Balance,
                TopView::Balance => TopView::Charts,
                TopView::Charts | TopView::Help => TopView::Guests,
            }),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.go(TopView::Help),
            KeyCode::Char(' ') => self.hold(),
            KeyCode::Esc | KeyCode::Backspace if self.view != TopView::Guests => self.go(TopView::Guests),
            KeyCode::Esc => self.list.sieve = None,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-self.page_step()),
            KeyCode::PageDown => self.step(self.page_step()),
            KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Char('w') => {
                if let TopView::Guests = self.view {
                    self.open();
                }
                if let TopView::Guest(id) = self.view {
                    return self.explain(id);
                }
            }
            KeyCode::Enter if self.view == TopView::Guests => self.open(),
            KeyCode::Left | KeyCode::Char('<') if self.view == TopView::Guests => self.list.move_order(-1),
            KeyCode::Right | KeyCode::Char('>') if self.view == TopView::Guests => self.list.move_order(1),
            KeyCode::Char('r') if self.view == TopView::Guests => self.list.is_reversed = !self.list.is_reversed,
            KeyCode::Char('g') if self.view == TopView::Guests => self.list.next_label(),
            KeyCode::Char('/') => {
                self.go(TopView::Guests);
                let text = self.list.sieve.as_ref().map(|sieve| sieve.text.clone()).unwrap_or_default();
                self.prompt = Some(FilterPrompt { text, error: None });
            }
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, code: KeyCode, has_control: bool) {
        let Some(prompt) = &mut self.prompt else { return };
        match code {
            KeyCode::Esc => self.prompt = None,
            KeyCode::Enter => self.take_filter(),
            KeyCode::Backspace => {
                prompt.text.pop();
                prompt.error = None;
            }
            KeyCode::Char('u') if has_control => *prompt = FilterPrompt::default(),
            KeyCode::Char(typed) if !has_control && prompt.text.len() < LONGEST_FILTER => {
                prompt.text.push(typed);
                prompt.error = None;
            }
            _ => {}
        }
    }

    /// Opens the chosen row.
    fn open(&mut self) {
        let Some(rows) = self.rows() else { return };
        match rows.keys.get(rows.place(self.list.chosen.as_ref())) {
            Some(RowKey::Guest(id)) => {
                self.list.chosen = Some(RowKey::Guest(*id));
                self.go(TopView::Guest(*id));
            }
            Some(RowKey::Group(name)) => self.list.open_group(name),
            None => {}
        }
    }

    fn page_step(&self) -> isize {
        layout::body(self.size).height.saturating_sub(2).max(1).cast_signed().into()
    }

    /// Chooses another row, or scrolls.
    fn step(&mut self, by: isize) {
        if self.view != TopView::Guests {
            let most =
                layout::lines_of(&self.page(), self.size.0).saturating_sub(layout::body(self.size).height.into());
            self.scroll = self.scroll.min(most).saturating_add_signed(by).min(most);
            return;
        }
        let Some(rows) = self.rows() else { return };
        let last = rows.keys.len().saturating_sub(1);
        let place = rows.place(self.list.chosen.as_ref()).saturating_add_signed(by).min(last);
        self.list.chosen = rows.keys.get(place).cloned();
    }

    pub(super) fn point(&mut self, mouse: MouseEvent) -> Option<TopRequest> {
        match mouse.kind {
            MouseEventKind::ScrollUp => self.step(-3),
            MouseEventKind::ScrollDown => self.step(3),
            MouseEventKind::Down(MouseButton::Left) if self.view == TopView::Guests && self.prompt.is_none() => {
                self.click(mouse.column, mouse.row);
            }
            _ => {}
        }
        None
    }

    fn click(&mut self, column: u16, line: u16) {
        let Some(rows) = self.rows() else { return };
        let body = layout::body(self.size);
        let Some(line) = line.checked_sub(body.y).filter(|line| *line < body.height) else { return };
        match line.checked_sub(1) {
            None => {
                let places = rows.table.places(Some(body.width.into()));
                let at = usize::from(column.saturating_sub(body.x));
                // The gap before a heading belongs to it, since figures stand on the right.
                let place = places.iter().find(|place| at < place.start + place.width);
                if let Some(place) = place {
                    self.list.order_by_column(place.column);
                }
            }
            Some(row) => {
                let first = layout::first_row(&rows, self.list.chosen.as_ref(), body.height);
                if let Some(key) = rows.keys.get(first + usize::from(row)) {
                    self.list.chosen = Some(key.clone());
                }
            }
        }
    }
}
