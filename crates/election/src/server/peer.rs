//! What nodes say to each other.

use std::future::Future;

use openraft::raft::AppendEntriesResponse;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::{Request, Response, Status};

use crate::node::Node;
use crate::node::asking::{Miss, Passed};
use crate::proto::peer_server;
use crate::proto::{IdentifyRequest, IdentifyResponse, Parcel};
use crate::raft::network::{pack, unpack};

pub(super) struct Peer {
    pub(super) node: Node,
}

#[tonic::async_trait]
impl peer_server::Peer for Peer {
    async fn identify(
        &self,
        _request: Request<IdentifyRequest>,
    ) -> Result<Response<IdentifyResponse>, Status> {
        let node = &self.node;
        Ok(Response::new(IdentifyResponse {
            node_id: node.id(),
            open: node.is_open(),
            formed: node.has_begun(),
        }))
    }

    async fn append(&self, request: Request<Parcel>) -> Result<Response<Parcel>, Status> {
        self.raft(request, |rpc| async move {
            let answer = self.node.raft().append_entries(rpc).await;
            // Whoever is told of a higher vote does not lead any more.
            if !matches!(answer, Err(_) | Ok(AppendEntriesResponse::HigherVote(_))) {
                self.node.note_word();
            }
            answer
        })
        .await
    }

    async fn vote(&self, request: Request<Parcel>) -> Result<Response<Parcel>, Status> {
        self.raft(request, |rpc| async move { self.node.raft().vote(rpc).await }).await
    }

    async fn snapshot(&self, request: Request<Parcel>) -> Result<Response<Parcel>, Status> {
        self.raft(request, |rpc| async move { self.node.raft().install_snapshot(rpc).await }).await
    }

    async fn ask(&self, request: Request<Parcel>) -> Result<Response<Parcel>, Status> {
        let parcel = request.into_inner();
        self.check(&parcel)?;
        let Passed { ask, pass_on, patience } = unpack(&parcel)?;
        let answer = match pass_on {
            true => self.node.ask(ask, patience).await,
            false => match self.node.leader() {
                Ok(leader) if leader == self.node.id() => self.node.answer(ask).await,
                // Whoever asked finds the leader itself.
                Ok(leader) => {
                    Err(Miss::not_done(format!("node {leader} leads, not node {}", self.node.id())))
                }
                Err(reason) => Err(Miss::not_done(reason)),
            },
        };
        Ok(Response::new(pack(0, &answer)?))
    }
}

impl Peer {
    /// Hands a message to Raft, if this node is meant and may take part.
    async fn raft<Q, A, F>(
        &self,
        request: Request<Parcel>,
        work: impl FnOnce(Q) -> F,
    ) -> Result<Response<Parcel>, Status>
    where
        Q: DeserializeOwned,
        A: Serialize,
        F: Future<Output = A>,
    {
        let parcel = request.into_inner();
        self.check(&parcel)?;
        if !self.node.is_open() {
            return Err(Status::unavailable("this node has no memory yet and takes no part"));
        }
        let answer = work(unpack(&parcel)?).await;
        Ok(Response::new(pack(0, &answer)?))
    }

    fn check(&self, parcel: &Parcel) -> Result<(), Status> {
        let id = self.node.id();
        if parcel.to == 0 || parcel.to == id {
            return Ok(());
        }
        Err(Status::invalid_argument(format!("this is node {id}, not node {}; correct --peers", parcel.to)))
    }
}
