//! The report of a balancer's last turn.

use ksmith_core::balance::{self, BalanceAction, PoolScope, ResizeRange};

use super::Balancer;
use ksmith_core::model::{BalanceReport, GuestRow, ResizeRecord};

impl Balancer {
    /// Returns the report of the last turn.
    pub fn report(&self) -> Option<BalanceReport> {
        let turn = self.turn.as_ref()?;
        let now = self.now();
        let rows = turn.view.guests.iter().map(|guest| {
            let action = turn.plan.actions.iter().find_map(|action| match action {
                BalanceAction::Resize { key, to_bytes, reason, .. } if *key == guest.key => {
                    Some((*to_bytes, reason.clone()))
                }
                _ => None,
            });
            let member = self.members.get(&guest.key);
            let abilities = member.and_then(|member| Some(&member.known.as_ref()?.1));
            GuestRow {
                way: abilities.map(|it| it.way.to_owned()),
                why_not: abilities.and_then(|it| it.why_not.clone()),
                least_bytes: ResizeRange::for_guest(guest, &turn.view.pool, &self.config).floor_bytes,
                to_bytes: action.as_ref().map(|(to, _)| *to),
                reason: action.map(|(_, reason)| reason),
                guest: guest.clone(),
            }
        });
        let marks = self.config.marks(&turn.view.pool);
        let merging = turn.plan.actions.iter().filter_map(|action| match action {
            BalanceAction::Ksm { step, reason } => Some((step.clone(), reason.clone())),
            BalanceAction::Resize { .. } => None,
        });
        let recent = self.done.iter().rev().map(|(then, done)| ResizeRecord {
            seconds_ago: now.saturating_sub(*then).as_secs_f64(),
            ..done.clone()
        });
        Some(BalanceReport {
            is_enabled: self.config.enabled,
            policy: self.policy.name().to_owned(),
            state: turn.plan.reason.state.to_owned(),
            reason: turn.plan.reason.text.clone(),
            pool_name: match &self.config.pool {
                PoolScope::Host => "host".to_owned(),
                PoolScope::Cgroup(path) => path.clone(),
            },
            pool: turn.view.pool,
            low_bytes: marks.low,
            high_bytes: marks.high,
            exposed: balance::shortfall(turn.view.pool.exposure_bytes, turn.view.pool.headroom_bytes),
            guests: rows.collect(),
            merging: merging.collect(),
            recent: recent.collect(),
        })
    }
}
