//! The state of `top`'s screen: order, filter, scroll position, pause. Keys change it, and each reading of the fleet fills it.

use std::cmp::Ordering;

use crate::cli::top::keys::Input;
use crate::cli::top::picture::{Latencies, Picture};
use crate::clock::Moment;
use crate::inspect::status::EndpointStatus;

/// By which column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    State,
    Endpoint,
    Owner,
    Age,
    Latency,
    Left,
}

impl Sort {
    const ALL: [Self; 6] =
        [Self::State, Self::Endpoint, Self::Owner, Self::Age, Self::Latency, Self::Left];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Endpoint => "endpoint",
            Self::Owner => "owner",
            Self::Age => "age",
            Self::Latency => "latency",
            Self::Left => "left",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// The largest first where that is what one looks for.
    fn compare(self, a: &EndpointStatus, b: &EndpointStatus) -> Ordering {
        let owner = |it: &EndpointStatus| it.lease.as_ref().map(|it| it.value.clone());
        let took = |it: &EndpointStatus| it.result.as_ref().and_then(|it| it.duration_ms);
        let left = |it: &EndpointStatus| it.lease.as_ref().map(|it| it.left);
        match self {
            Self::State => a.state.cmp(&b.state),
            Self::Endpoint => Ordering::Equal,
            Self::Owner => owner(a).cmp(&owner(b)),
            Self::Age => b.age.cmp(&a.age),
            Self::Latency => took(b).cmp(&took(a)),
            Self::Left => left(a).cmp(&left(b)),
        }
        .then_with(|| a.name.cmp(&b.name))
    }
}

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    Quit,
}

pub(crate) struct View {
    pub(crate) picture: Picture,
    pub(crate) latencies: Latencies,
    /// Since when nobody answers, and what came back instead.
    pub(crate) trouble: Option<(Moment, String)>,
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    pub(crate) filter: String,
    pub(crate) typing: bool,
    pub(crate) paused: bool,
    pub(crate) helps: bool,
    pub(crate) scrolled: usize,
    /// How many endpoints the screen has room for.
    pub(crate) room: usize,
    /// Which endpoints are to be seen, in their order.
    pub(crate) order: Vec<usize>,
}

impl View {
    pub(crate) fn of(picture: Picture) -> Self {
        let mut latencies = Latencies::default();
        latencies.see(&picture.status.endpoints);
        let mut view = Self {
            picture,
            latencies,
            trouble: None,
            sort: Sort::State,
            reversed: false,
            filter: String::new(),
            typing: false,
            paused: false,
            helps: false,
            scrolled: 0,
            room: 1,
            order: vec![],
        };
        view.arrange();
        view
    }

    /// There is a newer one.
    pub(crate) fn show(&mut self, picture: Picture) {
        self.latencies.see(&picture.status.endpoints);
        self.picture = picture;
        self.trouble = None;
        self.arrange();
    }

    fn arrange(&mut self) {
        let endpoints = &self.picture.status.endpoints;
        let wanted = self.filter.to_lowercase();
        let is_wanted = |it: &EndpointStatus| {
            let owner = it.lease.as_ref().map_or("", |it| it.value.as_str());
            [it.name.as_str(), owner, it.state.word()]
                .iter()
                .any(|it| it.to_lowercase().contains(&wanted))
        };
        let wanted = (0..endpoints.len()).filter(|it| is_wanted(&endpoints[*it]));
        self.order = wanted.collect();
        self.order.sort_by(|a, b| self.sort.compare(&endpoints[*a], &endpoints[*b]));
        if self.reversed {
            self.order.reverse();
        }
        self.scroll_to(self.scrolled);
    }

    /// No further than there is something to see.
    pub(crate) fn scroll_to(&mut self, row: usize) {
        self.scrolled = row.min(self.order.len().saturating_sub(self.room));
    }

    pub(crate) fn press(&mut self, key: Input) -> Next {
        match key {
            Input::Interrupt => return Next::Quit,
            _ if self.helps => self.helps = false,
            Input::Up => self.scroll_to(self.scrolled.saturating_sub(1)),
            Input::Down => self.scroll_to(self.scrolled + 1),
            Input::PageUp => self.scroll_to(self.scrolled.saturating_sub(self.room)),
            Input::PageDown => self.scroll_to(self.scrolled + self.room),
            Input::Home => self.scroll_to(0),
            Input::End => self.scroll_to(usize::MAX),
            Input::Escape => {
                self.typing = false;
                self.filter.clear();
                self.arrange();
            }
            Input::Enter => self.typing = false,
            _ if self.typing => self.type_in(key),
            Input::Char('q') => return Next::Quit,
            Input::Char('s') => {
                self.sort = self.sort.next();
                self.arrange();
            }
            Input::Char('r') => {
                self.reversed = !self.reversed;
                self.arrange();
            }
            Input::Char('/') => self.typing = true,
            Input::Char('p') => self.paused = !self.paused,
            Input::Char('?' | 'h') => self.helps = true,
            Input::Char('k') => self.scroll_to(self.scrolled.saturating_sub(1)),
            Input::Char('j') => self.scroll_to(self.scrolled + 1),
            Input::Char(_) | Input::Backspace | Input::Size(_) | Input::Suspend => (),
        }
        Next::GoOn
    }

    fn type_in(&mut self, key: Input) {
        match key {
            Input::Char(c) => self.filter.push(c),
            Input::Backspace => drop(self.filter.pop()),
            _ => return,
        }
        self.arrange();
    }
}
