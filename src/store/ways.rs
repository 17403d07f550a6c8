//! Two ways to renew: a cheap one where that proves enough, and by the fence what is left.
//!
//! Each is a message of its own, and each can be lost or come late on its own.

use crate::store::{Renew, RenewItem, Reply, Stamped};

/// Asks first by the name those whose fence was compared in this epoch (`keep.lua` says why that is enough), and then
/// by the fence all that are left. `has_names`: a role is not renewed without its leader's heartbeat.
pub(crate) fn renew<'a>(
    items: &'a [RenewItem],
    has_names: bool,
    by_name: impl FnOnce(Vec<&'a RenewItem>) -> Stamped<Vec<bool>>,
    by_fence: impl FnOnce(Vec<&'a RenewItem>) -> Stamped<Vec<Renew>>,
) -> Stamped<Vec<Renew>> {
    let is_proof = |at: &usize| has_names && items[*at].matched;
    let (matched, mut rest): (Vec<usize>, Vec<usize>) = (0..items.len()).partition(is_proof);
    let these = |places: &[usize]| places.iter().map(|&it| &items[it]).collect();
    let mut answers = vec![Renew::Extended; items.len()];
    if !matched.is_empty() {
        let Reply { stamp, answer } = by_name(these(&matched))?;
        let Some(kept) = answer else { return Ok(Reply { stamp, answer: None }) };
        rest.extend(matched.iter().zip(kept).filter(|it| !it.1).map(|it| *it.0));
        if rest.is_empty() {
            return Ok(Reply { stamp, answer: Some(answers) });
        }
    }
    let Reply { stamp, answer } = by_fence(these(&rest))?;
    let answer = answer.map(|renewed| {
        rest.iter().zip(renewed).for_each(|(&at, it)| answers[at] = it);
        answers
    });
    Ok(Reply { stamp, answer })
}
