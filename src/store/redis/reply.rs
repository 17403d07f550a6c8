//! What does each reply of a script mean? Pure: reads values that a server sent.

use std::time::Duration;

use redis::{RedisResult, Value};

use crate::config::setting::Setting;
use crate::model::{
    Epoch, FenceToken, InstanceId, SESSION_MAX_BYTES, Verdict, VerdictState, Weight,
};
use crate::store::redis::Server;
use crate::store::redis::server_check;
use crate::store::{
    Acquire, Fault, Grant, HeartbeatReply, Lasting, Publish, RawSession, Renew, Reply,
    RequestContext, RoleStatus, Stamp, StampedResult, StoreError, Verify,
};

/// Reads the stamp, and the items if the request named the current epoch.
pub(crate) fn stamped<T>(
    op: &'static str,
    server: &Server,
    context: &RequestContext,
    value: &Value,
    item: impl Fn(&Value) -> T,
) -> StampedResult<Vec<T>> {
    let (stamp, status, items) = split(op, server, context, value)?;
    let answer = (status == "ok").then(|| items.iter().map(item).collect());
    Ok(Reply { stamp, answer })
}

/// From the reply of acquire.lua: one fence for all of `n`, and what became of those that were not simply free.
pub(crate) fn acquired(
    server: &Server,
    context: &RequestContext,
    value: &Value,
    n: usize,
) -> StampedResult<Vec<Acquire>> {
    let op = "acquire on";
    let (stamp, status, answer) = split(op, server, context, value)?;
    if status != "ok" {
        return Ok(Reply { stamp, answer: None });
    }
    let answer = all_granted(answer, n).ok_or_else(|| server.unexpected(op))?;
    Ok(Reply { stamp, answer: Some(answer) })
}

fn all_granted(answer: &[Value], n: usize) -> Option<Vec<Acquire>> {
    let [fence, asked_for, others @ ..] = answer else { return None };
    let fence = FenceToken(number(fence)?);
    // An answer about something else grants nothing.
    if usize::try_from(number(asked_for)?).ok()? != n {
        return None;
    }
    let mut all = vec![Acquire::Granted { fence, grant: Grant::Free }; n];
    for other in others {
        let Value::Array(parts) = other else { return None };
        let [place, code, rest @ ..] = &parts[..] else { return None };
        let at = usize::try_from(number(place)?).ok()?.checked_sub(1)?;
        *all.get_mut(at)? = acquire(fence, number(code)?, rest);
    }
    Some(all)
}

/// The reply of heartbeat.lua; `None` if it arrived after `not_after_us`.
pub(crate) fn heartbeat(
    server: &Server,
    context: &RequestContext,
    value: &Value,
) -> StampedResult<HeartbeatReply> {
    let (stamp, status, items) = split("write the heartbeat on", server, context, value)?;
    let answer = match (status.as_str(), items) {
        ("ok", [unbroken, weight]) => Some(HeartbeatReply {
            unbroken: number(unbroken) == Some(1),
            weight: Weight(number(weight).and_then(|it| u32::try_from(it).ok()).unwrap_or(1)),
        }),
        _ => None,
    };
    Ok(Reply { stamp, answer })
}

/// From the reply of renew_by_owner.lua or verify_by_owner.lua: which of `n` are ours by name; none when the question's epoch was not the
/// right one.
pub(crate) fn names_caller(
    op: &'static str,
    server: &Server,
    context: &RequestContext,
    value: &Value,
    n: usize,
) -> StampedResult<Vec<bool>> {
    let (stamp, status, places) = split(op, server, context, value)?;
    if status != "ok" {
        return Ok(Reply { stamp, answer: None });
    }
    let ours = all_but(places, n).ok_or_else(|| server.unexpected(op))?;
    Ok(Reply { stamp, answer: Some(ours) })
}

/// From the reply of release_by_owner.lua: which of `n` were given back; `Some(None)` when their fences have to be compared.
pub(crate) fn released_by_owner(value: &Value, n: usize) -> Option<Option<Vec<bool>>> {
    let Value::Array(parts) = value else { return None };
    match &parts[..] {
        [Value::Int(0)] => Some(None),
        [Value::Int(1), places @ ..] => all_but(places, n).map(Some),
        _ => None,
    }
}

/// All of `n` but those at these places, counted from 1.
fn all_but(places: &[Value], n: usize) -> Option<Vec<bool>> {
    let mut all = vec![true; n];
    for place in places {
        let at = usize::try_from(number(place)?).ok()?.checked_sub(1)?;
        *all.get_mut(at)? = false;
    }
    Some(all)
}

fn split<'a>(
    op: &'static str,
    server: &Server,
    context: &RequestContext,
    value: &'a Value,
) -> Result<(Stamp, String, &'a [Value]), StoreError> {
    let unexpected = || server.unexpected(op);
    let Value::Array(parts) = value else { return Err(unexpected()) };
    let status = parts.first().and_then(text).ok_or_else(unexpected)?;
    if status == "timing" {
        let theirs = parts.get(1).and_then(number).ok_or_else(unexpected)?;
        let field = parts.get(2).and_then(text).unwrap_or_default();
        return Err(other_timing(server, context, theirs, &field));
    }
    let [_, epoch, hold_off, server_us, born, items @ ..] = &parts[..] else {
        return Err(unexpected());
    };
    let stamp = Stamp {
        epoch: Epoch(number(epoch).ok_or_else(unexpected)?),
        hold_off: Duration::from_millis(number(hold_off).ok_or_else(unexpected)?),
        server_us: number(server_us).ok_or_else(unexpected)?,
        data_epoch: Epoch(number(born).ok_or_else(unexpected)?),
        revoked_until_ms: items.first().filter(|_| status == "revoked").and_then(number),
    };
    Ok((stamp, status, items))
}

/// R14: the fleet or the role has another TTL.
fn other_timing(
    server: &Server,
    context: &RequestContext,
    theirs_ms: u64,
    field: &str,
) -> StoreError {
    let (ours_ms, epoch) = (context.duration.ttl.as_millis(), server.keys.epoch());
    let kind = server.keys.kind();
    let (op, theirs) = kind.disagreement();
    let way_out = kind.forget_ttl(&epoch, field);
    let ttl = server.locator.names().of(Setting::LeaseTtl);
    let reason = format!(
        "this instance has {ttl} {ours_ms}ms, {theirs} with {theirs_ms}ms; \
         use {theirs_ms}ms, or stop every instance, {way_out}, and start all with the new value"
    );
    StoreError { op, target: server.shown.clone(), fault: Fault::Misconfigured, reason }
}

/// An item as a code and what follows it.
fn coded(value: &Value) -> (u64, &[Value]) {
    match value {
        Value::Array(parts) => match &parts[..] {
            [code, rest @ ..] => (number(code).unwrap_or(0), rest),
            [] => (0, &[]),
        },
        plain => (number(plain).unwrap_or(0), &[]),
    }
}

pub(crate) const GARBLED: &str = "the reply is not of the expected form";

fn why(rest: &[Value]) -> String {
    let told = rest.first().and_then(text).unwrap_or_else(|| GARBLED.into());
    if server_check::is_denial(&told) { told + server_check::DENIED } else { told }
}

fn owner(rest: &[Value]) -> Option<InstanceId> {
    rest.first().and_then(text).filter(|it| !it.is_empty()).map(|it| InstanceId::new(&it))
}

fn acquire(fence: FenceToken, code: u64, rest: &[Value]) -> Acquire {
    match (code, rest) {
        (1, [how]) => match number(how) {
            Some(1) => Acquire::Granted { fence, grant: Grant::Adopted },
            Some(2) => Acquire::Granted { fence, grant: Grant::Takeover },
            _ => Acquire::Failed(GARBLED.into()),
        },
        (2, rest) => owner(rest).map_or(Acquire::Failed(GARBLED.into()), Acquire::HeldBy),
        (3, _) => Acquire::HoldOff,
        (4, _) => Acquire::NoHeartbeat,
        (5, _) => Acquire::Late,
        _ => Acquire::Failed(why(rest)),
    }
}

pub(crate) fn renew(value: &Value) -> Renew {
    match coded(value) {
        (1, _) => Renew::Extended,
        (2, _) => Renew::Reclaimed,
        (3, rest) => Renew::NotOwner(owner(rest)),
        (4, _) => Renew::Late,
        (_, rest) => Renew::Failed(why(rest)),
    }
}

pub(crate) fn verify(value: &Value) -> Verify {
    match coded(value) {
        (1, _) => Verify::Held,
        (2, _) => Verify::Missing,
        (3, rest) => Verify::NotOwner(owner(rest)),
        (_, rest) => Verify::Failed(why(rest)),
    }
}

pub(crate) fn publish(value: &Value) -> Publish {
    match coded(value) {
        (1, rest) => Publish::Stored(verdict_state(rest)),
        (2, _) => Publish::Fenced,
        (4, _) => Publish::Missing,
        (_, rest) => Publish::Failed(why(rest)),
    }
}

fn verdict_state(rest: &[Value]) -> Option<VerdictState> {
    let [verdict, since, before, failures, successes] = rest else { return None };
    let count = |it| Some(u32::try_from(number(it)?).unwrap_or(u32::MAX));
    Some(VerdictState {
        verdict: Verdict::parse(&text(verdict)?),
        since_ms: number(since)?,
        before_ms: number(before)?,
        failures: count(failures)?,
        successes: count(successes)?,
    })
}

/// How a role stands, by an answer of role_status.lua given at `now_us`.
pub(crate) fn role_status(now_us: u64, value: &Value) -> Option<RoleStatus> {
    let Value::Array(parts) = value else { return None };
    let [leader, left, written_us, stale, term, ttl] = &parts[..] else { return None };
    let leader = text(leader).filter(|it| !it.is_empty()).map(|it| {
        // Without an end, and without a TTL to cut it to.
        let left = number(left).map_or(Duration::MAX, Duration::from_millis);
        Lasting { value: InstanceId::new(&it), left }
    });
    let written_us = number(written_us).map(|it| now_us.saturating_sub(it.saturating_mul(1_000)));
    let term = FenceToken(number(term)?);
    Some(RoleStatus {
        leader,
        is_stale: number(stale) == Some(1),
        heartbeat_age: written_us.map(Duration::from_micros),
        term,
        // A term is the server's time in microseconds, unless its clock was set back.
        led_for: now_us.checked_sub(term.0).map(Duration::from_micros),
        ttl: number(ttl).map(Duration::from_millis),
    })
}

/// A stored session from the answers to STRLEN and GETRANGE; `None` where they do not say enough.
pub(crate) fn session(answers: &[Value]) -> Option<RawSession> {
    match answers {
        [Value::Int(0), _] => None,
        [bytes @ Value::Int(_), Value::BulkString(value)] => {
            let bytes: usize = number(bytes)?.try_into().ok()?;
            let whole = bytes <= SESSION_MAX_BYTES;
            Some(if whole { RawSession::Value(value.clone()) } else { RawSession::TooLarge(bytes) })
        }
        _ => None,
    }
}

/// A key that did not answer like a filled string, by its type; `None` when it has vanished.
pub(crate) fn odd_session(
    kind: Option<&str>,
    answers: &[Value],
) -> RedisResult<Option<RawSession>> {
    match (kind, answers.first()) {
        (Some("none"), _) => Ok(None),
        (Some("string"), Some(Value::Int(_))) => match answers.get(1) {
            // Its length may be asked for and its value may not: that does not make it empty.
            Some(denied @ Value::ServerError(error)) if error.code() != "WRONGTYPE" => {
                denied.clone().extract_error().map(|_| None)
            }
            _ => Ok(Some(RawSession::Value(vec![]))),
        },
        // It had another type a moment ago; the next look will see.
        (Some("string"), Some(Value::ServerError(error))) if error.code() == "WRONGTYPE" => {
            Ok(None)
        }
        (Some(kind), Some(Value::ServerError(error))) if error.code() == "WRONGTYPE" => {
            Ok(Some(RawSession::WrongType(kind.into())))
        }
        (_, Some(answer)) => answer.clone().extract_error().map(|_| None),
        (_, None) => Ok(None),
    }
}

pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(it) => u64::try_from(*it).ok(),
        _ => None,
    }
}

/// A number that a key holds as text.
pub(crate) fn number_in(value: &Value) -> Option<u64> {
    match value {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

/// The reply of TIME in microseconds.
pub(crate) fn server_us(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    number_in(seconds)?.checked_mul(1_000_000)?.checked_add(number_in(micros)?)
}

pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(it) => Some(String::from_utf8_lossy(it).into_owned()),
        Value::SimpleString(it) => Some(it.clone()),
        Value::Okay => Some("OK".into()),
        _ => None,
    }
}
