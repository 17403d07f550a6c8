//! Which Lua scripts are there, and how are they sent?

use std::fmt::{Display, Write as _};
use std::sync::LazyLock;

use redis::{ConnectionLike, RedisError, RedisResult, Value};

use crate::model::{
    EndpointId, InstanceId, InstanceInfo, KnownVerdict, Tenure, Thresholds, Verdict, VerdictState,
};
use crate::store::announcement;
use crate::store::keys::Keys;
use crate::store::lease_kind::LeaseKind;
use crate::store::redis::connection::Connection;
use crate::store::{GRANTS_LAST, Judging, LEADER_HEARTBEAT_EXTRA, PeerMessage, RequestContext};

/// A Lua file with the files it needs in front of it: `number.lua` where it reads numbers, `epoch.lua` where the answer depends
/// on the epoch, and `lease_kind.lua` where it grants or renews by the fence.
pub(crate) struct Script(redis::Script, &'static str);

macro_rules! script {
    (lease_kind + $file:literal) => {
        script!(@ concat!(
            include_str!("lua/number.lua"),
            include_str!("lua/epoch.lua"),
            include_str!("lua/lease_kind.lua"),
            include_str!(concat!("lua/", $file)),
        ))
    };
    (epoch + $file:literal) => {
        script!(@ concat!(
            include_str!("lua/number.lua"),
            include_str!("lua/epoch.lua"),
            include_str!(concat!("lua/", $file)),
        ))
    };
    (master_only + $file:literal) => {
        script!(@ concat!(
            include_str!("lua/number.lua"),
            include_str!("lua/master_only.lua"),
            include_str!(concat!("lua/", $file)),
        ))
    };
    (number + $file:literal) => {
        script!(@ concat!(include_str!("lua/number.lua"), include_str!(concat!("lua/", $file))))
    };
    ($file:literal) => { script!(@ include_str!(concat!("lua/", $file))) };
    (@ $code:expr) => { LazyLock::new(|| Script(redis::Script::new($code), $code)) };
}

pub(crate) static ACQUIRE: LazyLock<Script> = script!(lease_kind + "acquire.lua");
pub(crate) static HEARTBEAT: LazyLock<Script> = script!(epoch + "heartbeat.lua");
pub(crate) static REVOKE: LazyLock<Script> = script!(master_only + "revoke.lua");
pub(crate) static REVOKE_INSTANCE: LazyLock<Script> = script!(master_only + "revoke_instance.lua");
pub(crate) static BEAT: LazyLock<Script> = script!(number + "beat.lua");
pub(crate) static SIGNS_OF_LIFE: LazyLock<Script> = script!(number + "signs_of_life.lua");
pub(crate) static READ_CAPPED: LazyLock<Script> = script!(number + "read_capped.lua");
pub(crate) static DRAIN: LazyLock<Script> = script!("drain.lua");
pub(crate) static RELEASE_BY_OWNER: LazyLock<Script> =
    script!(master_only + "release_by_owner.lua");
pub(crate) static VERIFY_BY_OWNER: LazyLock<Script> = script!(epoch + "verify_by_owner.lua");
pub(crate) static RENEW_BY_OWNER: LazyLock<Script> = script!(epoch + "renew_by_owner.lua");
pub(crate) static PUBLISH: LazyLock<Script> = script!(epoch + "publish.lua");
pub(crate) static RELEASE: LazyLock<Script> = script!(master_only + "release.lua");
pub(crate) static RIGHTS: LazyLock<Script> = script!("rights.lua");
pub(crate) static RENEW: LazyLock<Script> = script!(lease_kind + "renew.lua");
pub(crate) static LAST_POLLED: LazyLock<Script> = script!("last_polled.lua");
pub(crate) static RETIRE: LazyLock<Script> = script!(number + "retire.lua");
pub(crate) static CAS_SESSION: LazyLock<Script> = script!("cas_session.lua");
pub(crate) static ROLE_STATUS: LazyLock<Script> = script!(number + "role_status.lua");
pub(crate) static EXPIRING: LazyLock<Script> = script!(number + "expiring.lua");
pub(crate) static VERIFY: LazyLock<Script> = script!(epoch + "verify.lua");

impl Script {
    /// Sends EVALSHA, and EVAL if the server does not know the hash or denies EVALSHA.
    pub(crate) fn run(&self, connection: &mut Connection, call: &Call) -> RedisResult<Value> {
        match call.send(connection, "EVALSHA", self.0.get_hash()) {
            Err(error) if is_unknown_script(&error) => call.send(connection, "EVAL", self.1),
            answer => answer,
        }
    }
}

impl Script {
    /// Sends EVAL.
    pub(crate) fn run_once(&self, connection: &mut Connection, call: &Call) -> RedisResult<Value> {
        call.send(connection, "EVAL", self.1)
    }

    /// [`Self::run`] for many calls that are written and read together: an answer each, or an error for all when
    /// the exchange broke off.
    pub(crate) fn run_each(
        &self,
        connection: &mut Connection,
        calls: &[Call],
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let hash = self.0.get_hash();
        let mut answers = send_each(connection, "EVALSHA", hash, calls.iter())?;
        // One EVAL loads the script; then the rest by hash, or by EVAL where EVALSHA is denied.
        for (verb, script, at_once) in
            [("EVAL", self.1, 1), ("EVALSHA", hash, calls.len()), ("EVAL", self.1, calls.len())]
        {
            let is_unknown = |it: &RedisResult<Value>| it.as_ref().is_err_and(is_unknown_script);
            let mut unknown: Vec<usize> =
                (0..calls.len()).filter(|&it| is_unknown(&answers[it])).collect();
            unknown.truncate(at_once);
            if unknown.is_empty() {
                break;
            }
            let again = send_each(connection, verb, script, unknown.iter().map(|&it| &calls[it]))?;
            unknown.into_iter().zip(again).for_each(|(at, answer)| answers[at] = answer);
        }
        Ok(answers)
    }
}

/// An error of the server's is an answer like another; `Err` only when there is none.
fn send_each<'a>(
    connection: &mut Connection,
    verb: &str,
    script: &str,
    calls: impl Iterator<Item = &'a Call>,
) -> RedisResult<Vec<RedisResult<Value>>> {
    let packed: Vec<Vec<u8>> = calls.map(|it| it.packed(verb, script)).collect();
    let values = connection.req_packed_commands(&packed.concat(), 0, packed.len())?;
    Ok(values.into_iter().map(Value::extract_error).collect())
}

fn is_unknown_script(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    match error.code() {
        Some("NOSCRIPT") => true,
        Some("NOPERM") => detail.contains("'evalsha'"),
        _ => detail.starts_with("unknown command"),
    }
}

/// Keys and arguments, encoded as RESP when added.
#[derive(Default)]
pub(crate) struct Call {
    keys: BulkStrings,
    args: BulkStrings,
    scratch: String,
}

/// RESP bulk strings, one after another.
#[derive(Default)]
struct BulkStrings {
    sent: Vec<u8>,
    n: usize,
}

impl BulkStrings {
    fn push(&mut self, parts: [&[u8]; 2]) {
        self.n += 1;
        self.sent.push(b'$');
        push_number(&mut self.sent, parts[0].len() + parts[1].len());
        self.sent.extend_from_slice(b"\r\n");
        self.sent.extend_from_slice(parts[0]);
        self.sent.extend_from_slice(parts[1]);
        self.sent.extend_from_slice(b"\r\n");
    }
}

/// Digits without `fmt`, which costs more.
fn push_number(to: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        push_number(to, number / 10);
    }
    to.push(b"0123456789"[number % 10]);
}

impl Call {
    /// The frame that epoch.lua expects.
    pub(crate) fn framed<'a>(
        keys: &Keys,
        context: &RequestContext,
        about: impl IntoIterator<Item = &'a EndpointId>,
    ) -> Self {
        let mut call = Self::default();
        call.key(keys.epoch());
        call.arg(&context.instance)
            .arg(context.epoch)
            .arg(u8::from(context.suspect))
            .arg(context.floor_us);
        call.arg(context.duration.ttl.as_millis()).arg(context.duration.margin().as_millis());
        call.arg(context.not_after_us).arg(u8::from(context.new_fleet));
        // A question is about many endpoints or about one role, because each role has its own timing.
        call.arg(about.into_iter().next().map(|it| keys.field_suffix(it)).unwrap_or_default());
        let heartbeat_lasts = context.duration.ttl.saturating_add(LEADER_HEARTBEAT_EXTRA);
        match keys.kind() {
            LeaseKind::Poll => call.bytes(b"").arg(u8::from(context.revocable)),
            LeaseKind::Role => call.arg(keys.leader_heartbeats()).arg(heartbeat_lasts.as_millis()),
        };
        call
    }

    /// What release_by_owner.lua expects.
    pub(crate) fn release_by_owner(
        keys: &Keys,
        context: &RequestContext,
        tenures: &[Tenure],
        wakes: &[PeerMessage],
    ) -> Self {
        let mut call = Self::default();
        call.key(keys.grants_key(&context.instance));
        call.arg(&context.instance)
            .arg(context.highest_fence)
            .arg(context.floor_us)
            .arg(GRANTS_LAST.as_millis());
        for tenure in tenures {
            call.lease(keys, &tenure.endpoint);
        }
        call.wakes(keys, wakes);
        call
    }

    /// What release.lua expects.
    pub(crate) fn release(
        keys: &Keys,
        owner: &InstanceId,
        tenures: &[Tenure],
        wakes: &[PeerMessage],
    ) -> Self {
        let mut call = Self::default();
        call.arg(owner);
        call.arg(tenures.first().map(|it| keys.fence_field(&it.endpoint)).unwrap_or_default());
        call.arg(keys.leader_heartbeat(owner)).arg(tenures.len());
        for tenure in tenures {
            call.lease_and_record(keys, &tenure.endpoint);
            call.arg(tenure.fence);
        }
        call.wakes(keys, wakes);
        call
    }

    /// What heartbeat.lua expects of the info: its key and each field with its value, or nothing.
    pub(crate) fn info(&mut self, keys: &Keys, me: &InstanceId, info: Option<&InstanceInfo>) {
        let Some(info) = info else { return };
        self.arg(keys.info(me));
        for (field, value) in info.fields() {
            self.arg(field).arg(value);
        }
    }

    /// What publish.lua expects to decide the verdict.
    pub(crate) fn judging(&mut self, it: &Judging) {
        let Thresholds { fail_after, ok_after } = it.thresholds;
        self.arg(fail_after).arg(ok_after);
        let address = it.session.as_ref().map(|it| it.address.shown()).unwrap_or_default();
        self.bytes(address.as_bytes());
        let Some(KnownVerdict { fence, started_at_ms, state }) = it.known else {
            self.bytes(b"").bytes(b"").bytes(b"");
            return;
        };
        let VerdictState { verdict, since_ms, before_ms, failures, successes } = state;
        let verdict = verdict.map_or("-", Verdict::as_str);
        self.arg(fence).arg(started_at_ms);
        self.arg(format_args!("{verdict} {since_ms} {before_ms} {failures} {successes}"));
    }

    fn wakes(&mut self, keys: &Keys, wakes: &[PeerMessage]) {
        for wake in wakes {
            self.arg(keys.message_channel(wake.to.as_ref()))
                .arg(announcement::encode_message(wake, keys.database()));
        }
    }

    /// The lease of `endpoint`, and the record of it that goes along.
    pub(crate) fn lease_and_record(&mut self, keys: &Keys, endpoint: &EndpointId) -> &mut Self {
        self.lease(keys, endpoint).record(keys, endpoint)
    }

    pub(crate) fn lease(&mut self, keys: &Keys, endpoint: &EndpointId) -> &mut Self {
        self.keys.push([keys.lease_prefix().as_bytes(), endpoint.as_str().as_bytes()]);
        self
    }

    pub(crate) fn record(&mut self, keys: &Keys, endpoint: &EndpointId) -> &mut Self {
        match keys.record_prefix() {
            Some(prefix) => self.keys.push([prefix.as_bytes(), endpoint.as_str().as_bytes()]),
            None => self.keys.push([keys.record_key(endpoint).as_bytes(), b""]),
        }
        self
    }

    pub(crate) fn key(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.keys.push([key.as_ref(), b""]);
        self
    }

    pub(crate) fn arg(&mut self, arg: impl Display) -> &mut Self {
        self.scratch.clear();
        let _ = write!(self.scratch, "{arg}"); // a String takes everything
        self.args.push([self.scratch.as_bytes(), b""]);
        self
    }

    /// The channel of `endpoint` among those that begin with `prefix`.
    pub(crate) fn channel(&mut self, prefix: &str, endpoint: &EndpointId) -> &mut Self {
        self.args.push([prefix.as_bytes(), endpoint.as_str().as_bytes()]);
        self
    }

    pub(crate) fn bytes(&mut self, arg: &[u8]) -> &mut Self {
        self.args.push([arg, b""]);
        self
    }

    fn packed(&self, verb: &str, script: &str) -> Vec<u8> {
        let mut head = BulkStrings::default();
        for word in [verb, script, &self.keys.n.to_string()] {
            head.push([word.as_bytes(), b""]);
        }
        let words = format!("*{}\r\n", head.n + self.keys.n + self.args.n);
        [words.as_bytes(), &head.sent, &self.keys.sent, &self.args.sent].concat()
    }

    fn send(&self, connection: &mut Connection, verb: &str, script: &str) -> RedisResult<Value> {
        connection.req_packed_command(&self.packed(verb, script))?.extract_error()
    }
}
