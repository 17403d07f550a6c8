//! TLS below a poll: the certificate of the endpoint must be signed by an authority that Mozilla trusts.

#[cfg(not(feature = "https"))]
pub(crate) use self::without::{Tls, TlsStream, socket_of};
#[cfg(feature = "https")]
pub(crate) use with::{Tls, TlsStream, socket_of};

#[cfg(feature = "https")]
mod with {
    use std::fmt;
    use std::io;
    use std::sync::{Arc, LazyLock};

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, StreamOwned};

    use crate::net::deadline_stream::Socket;
    use crate::net::tls::{builder, public_roots};

    pub(crate) type TlsStream = Box<StreamOwned<ClientConnection, Socket>>;

    pub(crate) fn socket_of(stream: &TlsStream) -> &Socket {
        &stream.sock
    }

    /// Settings that all polls share. Made at the first poll that needs them.
    pub(crate) struct Tls(LazyLock<Arc<ClientConfig>>);

    impl Default for Tls {
        fn default() -> Self {
            Self(LazyLock::new(|| {
                let builder = builder().with_root_certificates(public_roots());
                Arc::new(builder.with_no_client_auth())
            }))
        }
    }

    impl fmt::Debug for Tls {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Tls")
        }
    }

    impl Tls {
        /// Everything before the first byte of a request.
        pub(crate) fn handshake(&self, host: &str, socket: Socket) -> io::Result<TlsStream> {
            socket.set_nodelay()?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let unnamed = |_| io::Error::other("the host's name cannot be in a certificate");
            let name = ServerName::try_from(host).map_err(unnamed)?;
            let client =
                ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(client, socket);
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock)?;
            }
            Ok(Box::new(stream))
        }
    }
}

#[cfg(not(feature = "https"))]
mod without {
    use std::io;

    use crate::net::deadline_stream::Socket;

    /// There is none.
    pub(crate) type TlsStream = Socket;

    pub(crate) fn socket_of(stream: &TlsStream) -> &Socket {
        stream
    }

    #[derive(Debug, Default)]
    pub(crate) struct Tls {}

    impl Tls {
        pub(crate) fn handshake(&self, _: &str, _: Socket) -> io::Result<TlsStream> {
            Err(io::Error::other("this program was built without the feature https"))
        }
    }
}
