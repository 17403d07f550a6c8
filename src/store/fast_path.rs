//! Which leases can be asked about cheaply, by the owner's name, and which need their fence compared?
//!
//! Each is a message of its own, and each can be lost or come late on its own.

use crate::store::{Reply, StampedResult};

/// Asks first by the name those of which it `is_proof`, because their fence was compared in this epoch (`renew_by_owner.lua` says
/// why that is enough); who is ours so is answered `yes`. And then by the fence all that are left.
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
