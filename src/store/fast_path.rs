//! Which leases can be renewed or verified by the owner's name alone (fast path), and which need their fence compared?
//!
//! Splits a batch into two requests. Each of the two can be lost or late on its own.

use crate::store::{Reply, StampedResult};

/// First sends the items for which the owner's name `is_proof` to `by_owner`; `renew_by_owner.lua` says when it is. An item that
/// names the caller gets the answer `yes`. Then sends all others to `by_fence`.
pub(crate) fn by_owner_or_fence<'a, I, T: Clone>(
    items: &'a [I],
    is_proof: impl Fn(&I) -> bool,
    yes: &T,
    by_owner: impl FnOnce(Vec<&'a I>) -> StampedResult<Vec<bool>>,
    by_fence: impl FnOnce(Vec<&'a I>) -> StampedResult<Vec<T>>,
) -> StampedResult<Vec<T>> {
    let (named, mut rest): (Vec<usize>, Vec<usize>) =
        (0..items.len()).partition(|&at| is_proof(&items[at]));
    let these = |places: &[usize]| places.iter().map(|&at| &items[at]).collect();
    let mut answers = vec![yes.clone(); items.len()];
    if !named.is_empty() {
        let Reply { stamp, answer } = by_owner(these(&named))?;
        let Some(ours) = answer else { return Ok(Reply { stamp, answer: None }) };
        rest.extend(named.iter().zip(ours).filter(|it| !it.1).map(|it| *it.0));
        if rest.is_empty() {
            return Ok(Reply { stamp, answer: Some(answers) });
        }
    }
    let Reply { stamp, answer } = by_fence(these(&rest))?;
    let answer = answer.map(|found| {
        rest.iter().zip(found).for_each(|(&at, it)| answers[at] = it);
        answers
    });
    Ok(Reply { stamp, answer })
}
