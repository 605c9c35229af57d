//! How a node reaches the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{AnyError, BasicNode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::Types;
use crate::proto::peer_client::PeerClient;
use crate::proto::{IdentifyRequest, IdentifyResponse, Parcel};
use crate::security::{self, Security, Stamp};

/// The largest message between nodes: a snapshot comes in parts of 1 MiB, as JSON numbers.
pub(crate) const PARCEL_MAX: usize = 16 << 20;
/// How long a node that cannot be reached is left alone.
const PAUSE: Duration = Duration::from_millis(200);

type Client = PeerClient<InterceptedService<Channel, Stamp>>;

/// The ways to the other nodes. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Peers {
    security: Security,
    stamp: Stamp,
    /// As this node was told; it wins over what a member said of itself.
    routes: Arc<BTreeMap<u64, String>>,
    channels: Arc<Mutex<HashMap<String, Channel>>>,
    silent_until: Arc<Mutex<Option<Instant>>>,
}

impl Peers {
    pub(crate) fn new(security: Security, routes: BTreeMap<u64, String>) -> Result<Self, security::Error> {
        Ok(Self {
            stamp: security.stamp()?,
            security,
            routes: Arc::new(routes),
            channels: Arc::default(),
            silent_until: Arc::default(),
        })
    }

    /// Where a node is reached whose own word is `advertised`.
    pub(crate) fn route<'a>(&'a self, id: u64, advertised: &'a str) -> &'a str {
        self.routes.get(&id).map_or(advertised, String::as_str)
    }

    /// Does not replicate until then, so that others can find a leader that is heard.
    pub(crate) fn fall_silent(&self, until: Instant) {
        *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    fn is_silent(&self) -> bool {
        let until = *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) async fn identify(
        &self,
        address: &str,
        patience: Duration,
    ) -> Result<IdentifyResponse, Status> {
        let mut client = self.client(address)?;
        let answer = tokio::time::timeout(patience, client.identify(IdentifyRequest {})).await;
        answer.map_err(|_| Status::deadline_exceeded("no answer"))?.map(Response::into_inner)
    }

    /// Asks the node at that address something that the leader must answer.
    pub(crate) async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        (to, address): (u64, &str),
        question: &Q,
        patience: Duration,
    ) -> Result<A, Status> {
        let mut client = self.client(address)?;
        let parcel = pack(to, question)?;
        let answer = tokio::time::timeout(patience, client.ask(Request::new(parcel))).await;
        unpack(&answer.map_err(|_| Status::deadline_exceeded("no answer"))??.into_inner())
    }

    fn client(&self, address: &str) -> Result<Client, Status> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match channels.get(address) {
            Some(channel) => channel.clone(),
            None => {
                let endpoint = self.security.endpoint(address);
                let channel =
                    endpoint.map_err(|error| Status::invalid_argument(error.to_string()))?.connect_lazy();
                channels.insert(address.to_owned(), channel.clone());
                channel
            }
        };
        let client = PeerClient::with_interceptor(channel, self.stamp.clone());
        Ok(client.max_decoding_message_size(PARCEL_MAX).max_encoding_message_size(PARCEL_MAX))
    }
}

/// Packs something for a node.
pub(crate) fn pack(to: u64, content: &impl Serialize) -> Result<Parcel, Status> {
    let json = serde_json::to_vec(content).map_err(|error| Status::internal(error.to_string()))?;
    Ok(Parcel { json, to })
}

/// Unpacks what a node has sent.
pub(crate) fn unpack<T: DeserializeOwned>(parcel: &Parcel) -> Result<T, Status> {
    serde_json::from_slice(&parcel.json).map_err(|error| {
        Status::invalid_argument(format!("a message of another node makes no sense: {error}"))
    })
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Link {
        Link { target, address: self.route(target, &node.addr).to_owned(), peers: self.clone() }
    }
}

/// The way to one node.
pub(crate) struct Link {
    target: u64,
    address: String,
    peers: Peers,
}

/// Which question is asked.
#[derive(Clone, Copy)]
enum Kind {
    Append,
    Vote,
    Snapshot,
}

impl Link {
    async fn send<Q, A, E>(
        &self,
        kind: Kind,
        question: &Q,
    ) -> Result<A, RPCError<u64, BasicNode, RaftError<u64, E>>>
    where
        Q: Serialize,
        A: DeserializeOwned,
        E: DeserializeOwned + std::error::Error,
    {
        let sent = async {
            let mut client = self.peers.client(&self.address)?;
            let parcel = Request::new(pack(self.target, question)?);
            let answer = match kind {
                Kind::Append => client.append(parcel).await?,
                Kind::Vote => client.vote(parcel).await?,
                Kind::Snapshot => client.snapshot(parcel).await?,
            };
            unpack::<Result<A, RaftError<u64, E>>>(&answer.into_inner())
        };
        match sent.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(RPCError::RemoteError(RemoteError::new(self.target, error))),
            Err(status) if status.code() == tonic::Code::Unavailable => Err(unreachable(&status)),
            Err(status) => Err(RPCError::Network(NetworkError::new(&AnyError::error(status)))),
        }
    }
}

fn unreachable<E: std::error::Error>(why: &impl std::fmt::Display) -> RPCError<u64, BasicNode, E> {
    RPCError::Unreachable(Unreachable::new(&AnyError::error(why)))
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        if self.peers.is_silent() {
            return Err(unreachable(&"this node hears no majority and is silent for a while"));
        }
        self.send(Kind::Append, &rpc).await
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>>
    {
        self.send(Kind::Snapshot, &rpc).await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.send(Kind::Vote, &rpc).await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(PAUSE))
    }
}
