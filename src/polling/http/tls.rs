//! TLS below a poll: which certificates are believed, and what the endpoint showed.
//!
//! Each poll makes a whole handshake. A resumed session would show the certificate of an earlier poll, and an expired or
//! exchanged one would not be noticed.

#[cfg(feature = "https")]
mod verifier;
#[cfg(feature = "https")]
mod words;

#[cfg(not(feature = "https"))]
pub(crate) use self::without::{Tls, TlsStream, socket_of};
#[cfg(feature = "https")]
pub(crate) use with::{Tls, TlsStream, socket_of};

/// What the instance believes, beside what a session says.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Authorities beside the public ones, in DER.
    pub authorities: Vec<Vec<u8>>,
    /// Whether a session may have any certificate believed.
    pub allows_insecure: bool,
    /// A certificate with fewer days left than this deserves attention.
    pub warn_days: u32,
}

#[cfg(feature = "https")]
mod with {
    use std::fmt;
    use std::io;
    use std::sync::{Arc, OnceLock};

    use rustls::client::Resumption;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    use crate::lease::permit::PollPermit;
    use crate::model::{Certificate, CertificateLeft, TlsCheck};
    use crate::net::deadline_stream::Socket;
    use crate::net::tls::{builder, public_roots};
    use crate::polling::http::tls::Trust;
    use crate::polling::http::tls::verifier::{Verifier, seconds};
    use crate::polling::http::tls::words::in_words;

    pub(crate) type TlsStream = Box<StreamOwned<ClientConnection, Socket>>;

    pub(crate) fn socket_of(stream: &TlsStream) -> &Socket {
        &stream.sock
    }

    /// Settings that polls share. Made at the first poll that needs them.
    #[derive(Default)]
    pub(crate) struct Tls {
        trust: Trust,
        usual: OnceLock<Arc<ClientConfig>>,
        insecure: OnceLock<Arc<ClientConfig>>,
    }

    impl fmt::Debug for Tls {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Tls")
        }
    }

    impl Tls {
        pub(crate) fn new(trust: Trust) -> Self {
            Self { trust, ..Self::default() }
        }

        /// Everything before the first byte of a request.
        pub(crate) fn handshake(
            &self,
            host: &str,
            socket: Socket,
            check: &TlsCheck,
            permit: &PollPermit,
        ) -> io::Result<TlsStream> {
            socket.set_nodelay()?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let unnamed = |_| io::Error::other("the host's name cannot be in a certificate");
            let name = ServerName::try_from(host).map_err(unnamed)?;
            let config = self.config(check).map_err(io::Error::other)?;
            let client = ClientConnection::new(config, name).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(client, socket);
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock).map_err(in_words)?;
            }
            let shown = stream.conn.peer_certificates().and_then(|it| it.first());
            if let Some(shown) = shown.and_then(|it| Certificate::parse(it)) {
                permit.note_certificate(self.judged(&shown, check));
            }
            Ok(Box::new(stream))
        }

        fn judged(&self, shown: &Certificate, check: &TlsCheck) -> CertificateLeft {
            let wanted = check.warn_days.unwrap_or(self.trust.warn_days);
            let days = shown.days_left(seconds(UnixTime::now()));
            CertificateLeft { days, is_short: days < i64::from(wanted) }
        }

        fn config(&self, check: &TlsCheck) -> Result<Arc<ClientConfig>, String> {
            if check.is_insecure && !self.trust.allows_insecure {
                return Err("the session has tlsInsecure, which this instance does not allow: leave it out, \
                            or start the instances with --allow-tls-insecure"
                    .into());
            }
            if check.is_insecure {
                return Ok(Arc::clone(
                    self.insecure.get_or_init(|| config(Verifier::of_nothing())),
                ));
            }
            if let Some(authorities) = &check.authorities {
                return Ok(config(Verifier::of(RootCertStore::empty(), authorities)?));
            }
            if let Some(usual) = self.usual.get() {
                return Ok(Arc::clone(usual));
            }
            let made = config(Verifier::of(public_roots(), &self.trust.authorities)?);
            Ok(Arc::clone(self.usual.get_or_init(|| made)))
        }
    }

    fn config(verifier: Verifier) -> Arc<ClientConfig> {
        let builder = builder().dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = builder.with_no_client_auth();
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }
}

#[cfg(not(feature = "https"))]
mod without {
    use std::io;

    use crate::lease::permit::PollPermit;
    use crate::model::TlsCheck;
    use crate::net::deadline_stream::Socket;
    use crate::polling::http::tls::Trust;

    /// There is none.
    pub(crate) type TlsStream = Socket;

    pub(crate) fn socket_of(stream: &TlsStream) -> &Socket {
        stream
    }

    #[derive(Debug)]
    pub(crate) struct Tls {}

    impl Tls {
        pub(crate) fn new(_: Trust) -> Self {
            Self {}
        }

        pub(crate) fn handshake(
            &self,
            _: &str,
            _: Socket,
            _: &TlsCheck,
            _: &PollPermit,
        ) -> io::Result<TlsStream> {
            Err(io::Error::other("this program was built without the feature https"))
        }
    }
}
