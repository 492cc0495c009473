//! Reply bodies, as what the calls return. Each function is given what was asked.

use ringkeeper_wire::{
    Create2Response, GetAclResponse, GetAllChildrenNumberResponse, GetChildren2Response, GetDataResponse,
    GetEphemeralsResponse, MultiReadOp, MultiReadRequest, MultiRequest, MultiResponse, MultiResult, OpCode,
    Record, WhoAmIResponse,
};

use crate::driver::Asked;
use crate::path::from_server;
use crate::{Acl, Call, Created, Error, Identity, OpResult, ReadResult, Result, Stat};

impl Asked {
    /// The call of a transaction that this operation stands for.
    fn op(&self, index: usize) -> Call {
        let ops = MultiRequest::from_bytes(&self.ops).ok();
        match ops.and_then(|ops| ops.iter().nth(index)) {
            Some(op) => Call::of(op.op(), from_server(self.chroot_len, op.path())),
            None => Call::of(OpCode::Multi, ""),
        }
    }
}

type Body<'a> = Result<&'a [u8]>;

pub(crate) fn nothing(body: Body<'_>, _: &Asked) -> Result<()> {
    body.map(drop)
}

pub(crate) fn created(body: Body<'_>, asked: &Asked) -> Result<Created> {
    let Create2Response { path, stat } = Record::from_bytes(body?)?;
    Ok(Created { path: from_server(asked.chroot_len, &path).to_owned(), stat: stat.into() })
}

pub(crate) fn stat(body: Body<'_>, _: &Asked) -> Result<Stat> {
    Ok(ringkeeper_wire::Stat::from_bytes(body?)?.into())
}

pub(crate) fn exists(body: Body<'_>, asked: &Asked) -> Result<Option<Stat>> {
    match body {
        Err(Error::NoNode(_)) => Ok(None),
        body => stat(body, asked).map(Some),
    }
}

pub(crate) fn data(body: Body<'_>, _: &Asked) -> Result<(Vec<u8>, Stat)> {
    let GetDataResponse { data, stat } = Record::from_bytes(body?)?;
    Ok((data.unwrap_or_default().to_vec(), stat.into()))
}

pub(crate) fn children(body: Body<'_>, _: &Asked) -> Result<(Vec<String>, Stat)> {
    let GetChildren2Response { children, stat } = Record::from_bytes(body?)?;
    Ok((children.iter().map(Into::into).collect(), stat.into()))
}

pub(crate) fn acl(body: Body<'_>, _: &Asked) -> Result<(Acl, Stat)> {
    let response = GetAclResponse::from_bytes(body?)?;
    let stat = response.stat.into();
    Ok((response.into(), stat))
}

pub(crate) fn ephemerals(body: Body<'_>, asked: &Asked) -> Result<Vec<String>> {
    let GetEphemeralsResponse { ephemerals } = Record::from_bytes(body?)?;
    Ok(ephemerals.iter().map(|path| from_server(asked.chroot_len, &path).to_owned()).collect())
}

pub(crate) fn descendants(body: Body<'_>, _: &Asked) -> Result<u32> {
    let GetAllChildrenNumberResponse { total_number } = Record::from_bytes(body?)?;
    Ok(u32::try_from(total_number).unwrap_or(0))
}

pub(crate) fn identities(body: Body<'_>, _: &Asked) -> Result<Vec<Identity>> {
    let WhoAmIResponse { client_info } = Record::from_bytes(body?)?;
    let identity = |info: ringkeeper_wire::ClientInfo<'_>| Identity {
        scheme: info.auth_scheme.into_owned(),
        id: info.user.into_owned(),
    };
    Ok(client_info.iter().map(identity).collect())
}

pub(crate) fn transaction(body: Body<'_>, asked: &Asked) -> Result<Vec<OpResult>> {
    let results = MultiResponse::from_bytes(body?)?;
    // In a failed transaction every result is an error: 0 before the one that failed, its code, -2 after.
    let failure = results.iter().enumerate().find_map(|(index, result)| match result {
        MultiResult::Error(code) if code != 0 => Some((index, code)),
        _ => None,
    });
    if let Some((index, code)) = failure {
        return Err(Error::Transaction { index, error: Box::new(Error::from_wire(code, asked.op(index))) });
    }
    let result = |result| match result {
        MultiResult::Created(path) => {
            OpResult::Created { path: from_server(asked.chroot_len, &path).to_owned(), stat: None }
        }
        MultiResult::Created2(path, stat) => OpResult::Created {
            path: from_server(asked.chroot_len, &path).to_owned(),
            stat: Some(stat.into()),
        },
        MultiResult::DataSet(stat) => OpResult::DataSet(stat.into()),
        MultiResult::Deleted => OpResult::Deleted,
        // No other kind answers an operation of a transaction.
        _ => OpResult::Checked,
    };
    Ok(results.iter().map(result).collect())
}

pub(crate) fn reads(body: Body<'_>, asked: &Asked) -> Result<Vec<Result<ReadResult>>> {
    let results = MultiResponse::from_bytes(body?)?;
    let reads = MultiReadRequest::from_bytes(&asked.ops)?;
    let call = |read| {
        let (op, path) = match read {
            MultiReadOp::GetData(request) => (OpCode::GetData, request.path),
            MultiReadOp::GetChildren(request) => (OpCode::GetChildren, request.path),
        };
        Call::of(op, from_server(asked.chroot_len, &path))
    };
    let result = |(result, read)| match result {
        MultiResult::Data(data, stat) => Ok(ReadResult::Data(data.unwrap_or_default().to_vec(), stat.into())),
        MultiResult::Children(children) => {
            Ok(ReadResult::Children(children.iter().map(Into::into).collect()))
        }
        MultiResult::Error(code) => Err(Error::from_wire(code, call(read))),
        // No other kind answers a read.
        _ => Err(Error::Server(0, call(read))),
    };
    Ok(results.iter().zip(reads.iter()).map(result).collect())
}
