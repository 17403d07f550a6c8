//! TLS around a socket: whom we believe, who we are, and why it was refused, in words.
//!
//! Without the feature `https` there is no TLS, and a configuration that asks for it is refused at the start.

#[cfg(feature = "https")]
pub(crate) use secured::{Stream, Tls};
#[cfg(not(feature = "https"))]
pub(crate) use unsecured::{Stream, Tls};

#[cfg(feature = "https")]
mod secured {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;

    use redis::{ErrorKind, RedisError, RedisResult};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection};
    use rustls::{RootCertStore, StreamOwned};

    use crate::config::access::PemFile;
    use crate::config::setting::{Names, Setting};
    use crate::config::{Access, AccessError};
    use crate::net::deadline_stream::Socket;
    use crate::net::tls::{builder, public_roots};

    pub(crate) struct Stream {
        tls: Box<StreamOwned<ClientConnection, Socket>>,
        refusal: Option<RedisError>,
        names: Names,
    }

    /// Certificates, as they were when this was read.
    pub(crate) struct Tls {
        client: Arc<ClientConfig>,
        names: Names,
    }

    impl Tls {
        pub(crate) fn read(access: &Access, names: Names) -> Result<Self, AccessError> {
            let roots = match access.ca() {
                Some(file) => {
                    let mut roots = RootCertStore::empty();
                    for it in certificates(file)? {
                        roots.add(it).map_err(|_| file.useless())?;
                    }
                    roots
                }
                None => public_roots(),
            };
            let builder = builder().with_root_certificates(roots);
            let config = match (access.cert(), access.key()) {
                (Some(cert), Some(key)) => {
                    let secret =
                        PrivateKeyDer::from_pem_slice(&key.read()?).map_err(|_| key.useless())?;
                    builder
                        .with_client_auth_cert(certificates(cert)?, secret)
                        .map_err(|_| key.useless())?
                }
                _ => builder.with_no_client_auth(),
            };
            Ok(Self { client: Arc::new(config), names })
        }

        /// Says who we are and hears whom we speak to, before the socket's deadline.
        pub(crate) fn shake_hands(&self, host: &str, socket: Socket) -> RedisResult<Stream> {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| told("the host's name cannot be in a certificate".into()))?;
            let client = ClientConnection::new(Arc::clone(&self.client), name)
                .map_err(|error| told(error.to_string()))?;
            let mut stream = StreamOwned::new(client, socket);
            while stream.conn.is_handshaking() {
                let shaken = stream.conn.complete_io(&mut stream.sock);
                shaken.map_err(|error| {
                    refusal(&error, self.names).unwrap_or_else(|| unanswered(error).into())
                })?;
            }
            Ok(Stream { tls: Box::new(stream), refusal: None, names: self.names })
        }
    }

    fn certificates(file: PemFile<'_>) -> Result<Vec<CertificateDer<'static>>, AccessError> {
        let bytes = file.read()?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        found.ok().filter(|it| !it.is_empty()).ok_or_else(|| file.useless())
    }

    impl Stream {
        pub(crate) fn socket(&mut self) -> &mut Socket {
            &mut self.tls.sock
        }

        /// What TLS itself refused, if anything: a setting to mend, and not a server that is away.
        pub(crate) fn refusal(&mut self) -> Option<RedisError> {
            self.refusal.take()
        }

        fn noted<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
            if let Err(error) = &done {
                self.refusal = refusal(error, self.names);
            }
            done
        }
    }

    impl Read for Stream {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.tls.read(buffer);
            self.noted(read)
        }
    }

    impl Write for Stream {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            let written = self.tls.write(buffer);
            self.noted(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            let flushed = self.tls.flush();
            self.noted(flushed)
        }
    }

    impl AsFd for Stream {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.tls.sock.as_fd()
        }
    }

    /// A Redis without TLS takes what we say for the beginning of a long line, and waits for its end.
    fn unanswered(error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::TimedOut {
            return error;
        }
        let why = format!("{error} to the handshake of TLS: does it speak TLS on this port?");
        io::Error::new(io::ErrorKind::TimedOut, why)
    }

    fn refusal(error: &io::Error, names: Names) -> Option<RedisError> {
        let cause = error.get_ref()?.downcast_ref()?;
        Some(told(sentence(cause, names)))
    }

    fn told(reason: String) -> RedisError {
        (ErrorKind::InvalidClientConfig, "TLS", reason).into()
    }

    fn sentence(error: &rustls::Error, names: Names) -> String {
        use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
        let (cert, key) = (names.of(Setting::RedisCert), names.of(Setting::RedisKey));
        let way_out = match error {
            InvalidCertificate(CertificateError::UnknownIssuer) => {
                let ca = names.of(Setting::RedisCa);
                &*format!(
                    "nobody we believe has signed its certificate: name the authority with {ca}"
                )
            }
            InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => {
                let redis = names.of(Setting::Redis);
                &*format!(
                    "its certificate is for another name: write the host in {redis} as it is there"
                )
            }
            InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => "its certificate has expired: renew it on the server, or set this host's clock",
            InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => "its certificate is not valid yet: set this host's clock",
            InvalidCertificate(_) => "its certificate cannot be believed",
            AlertReceived(
                AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
            ) => &*format!("it asks for a certificate of ours: give {cert} and {key}"),
            AlertReceived(_) => &*format!(
                "it refused us: see whether its authority signed {cert}, and the server's log"
            ),
            InvalidMessage(_) => "it does not speak TLS there: write redis://, or its TLS port",
            _ => "TLS failed",
        };
        format!("{way_out} ({error})")
    }
}

#[cfg(not(feature = "https"))]
mod unsecured {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};

    use redis::{RedisError, RedisResult};

    use crate::config::setting::Names;
    use crate::config::{Access, AccessError};
    use crate::net::deadline_stream::Socket;

    /// There is none of this kind.
    pub(crate) enum Tls {}
    pub(crate) enum Stream {}

    impl Tls {
        pub(crate) fn read(_: &Access, _: Names) -> Result<Self, AccessError> {
            Err(AccessError::TlsUnsupported)
        }

        pub(crate) fn shake_hands(&self, _: &str, _: Socket) -> RedisResult<Stream> {
            match *self {}
        }
    }

    impl Stream {
        pub(crate) fn socket(&mut self) -> &mut Socket {
            match *self {}
        }

        pub(crate) fn refusal(&mut self) -> Option<RedisError> {
            match *self {}
        }
    }

    impl Read for Stream {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            match *self {}
        }
    }

    impl Write for Stream {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            match *self {}
        }

        fn flush(&mut self) -> io::Result<()> {
            match *self {}
        }
    }

    impl AsFd for Stream {
        fn as_fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }
    }
}
