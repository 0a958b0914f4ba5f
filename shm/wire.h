/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on the manager's socket (AF_UNIX, SOCK_SEQPACKET: one message, one packet). Fixed structs, host byte order:
 * both ends are on one machine. The manager sends descriptors beside WELCOME, SEGMENTS, KV_OPENED, KV_SEGMENTS, VRAM_OPENED and REPLY; it
 * takes one beside a CONTROL, from root and its own user only: the file that a question is about.
 *
 *   client                      manager
 *   HELLO  ------------------->           attach: what model, in which view, how much at once
 *          <------------------- WELCOME   status; on 0 the descriptors page, counters, catalog, directory, channel, ledger
 *   SEGMENTS ----------------->           pool segments from number `first` on
 *          <------------------- SEGMENTS  count, their descriptors
 *   DETACH ------------------->           after the client has unmapped; ends the session
 *          <------------------- DETACH    the manager has let go of everything
 *   POLICY ------------------->           a wish for a residency policy
 *          <------------------- POLICY    status
 *   KV_OPEN ------------------>           a namespace of KV prefixes
 *          <------------------- KV_OPENED status; on 0 the descriptors kv directory, kv channel, kv staging
 *   KV_SEGMENTS -------------->           as SEGMENTS, of a namespace's pool
 *          <------------------- KV_SEGMENTS
 *   KV_INVALIDATE ------------>           forget all blocks of an identity
 *          <------------------- KV_INVALIDATE
 *   VRAM_OPEN ---------------->           the memory of one GPU, for who is trusted with it
 *          <------------------- VRAM_OPENED status; on 0 the descriptors vram directory, vram ledger, pidfd of the exporter
 *   CONTROL ------------------>           one JSON object, e.g. {"verb":"status"} (cnrectl)
 *          <------------------- REPLY     status; a sealed memfd with the JSON text
 *
 * A request that was not answered before the epoch changed may be sent again (R28). At most one message with
 * descriptors is unread per client (R27): the manager answers the next request only when the last was sent.
 */
#ifndef CNRE_SHM_WIRE_H
#define CNRE_SHM_WIRE_H

#include "shm/layout.h"
#include "shm/packet.h"

#define CNRE_WIRE_MAGIC 0x43524e45u
#define CNRE_WIRE_FDS_MAX CNRE_PACKET_FDS_MAX
#define CNRE_WIRE_MODEL_MAX 4096
#define CNRE_WIRE_KV_NAME_BYTES 64u       /* of a namespace as a client calls it, with its end */
#define CNRE_WIRE_CONTROL_MAX 16384       /* JSON text of a control request */
#define CNRE_WIRE_MESSAGE_MAX 32768

enum cnre_wire_type {
	CNRE_WIRE_HELLO = 1,
	CNRE_WIRE_WELCOME,
	CNRE_WIRE_SEGMENTS,
	CNRE_WIRE_DETACH,
	CNRE_WIRE_CONTROL,
	CNRE_WIRE_REPLY,
	CNRE_WIRE_KV_OPEN,
	CNRE_WIRE_KV_OPENED,
	CNRE_WIRE_KV_SEGMENTS,
	CNRE_WIRE_KV_INVALIDATE,
	CNRE_WIRE_POLICY,
	CNRE_WIRE_VRAM_OPEN,
	CNRE_WIRE_VRAM_OPENED,
};

struct cnre_wire_header {
	uint32_t magic;
	uint16_t type;
	uint16_t version;                 /* CNRE_LAYOUT_VERSION of the sender; a difference is answered with -EPROTO */
	uint32_t id;                      /* chosen by the asker, returned in the answer */
	uint32_t bytes;                   /* of the whole message */
};
_Static_assert(sizeof(struct cnre_wire_header) == 16, "is ABI");

struct cnre_wire_hello {
	struct cnre_wire_header header;
	uint32_t flags;                   /* CNRE_NO_EXPERTS … of cnre.h */
	uint32_t by_path;                 /* 1: identity, config and names are those of the client's own directory */
	uint64_t reserve_bytes;
	uint64_t private_bytes;
	char name[CNRE_NAME_BYTES];
	char view[CNRE_NAME_BYTES];       /* empty: bytes as in the checkpoint */
	unsigned char identity[CNRE_IDENTITY_BYTES];
	unsigned char config[CNRE_IDENTITY_BYTES];
	unsigned char names[CNRE_IDENTITY_BYTES];
	char model[CNRE_WIRE_MODEL_MAX];  /* path as given, or a served model's name */
};

/* Descriptors of a successful WELCOME, in this order. */
enum { CNRE_FD_PAGE, CNRE_FD_COUNTERS, CNRE_FD_CATALOG, CNRE_FD_DIRECTORY, CNRE_FD_CHANNEL, CNRE_FD_LEDGER, CNRE_FD_COUNT };

struct cnre_wire_welcome {
	struct cnre_wire_header header;
	int32_t status;                   /* 0 or -errno as cnre_attach returns it */
	uint32_t session;
	uint32_t epoch;
	uint32_t reserve_slabs;           /* granted: objects leased or waited for at once */
	uint64_t reserve_bytes;           /* the same in bytes of the largest class */
	uint32_t manager_pid;
	uint32_t reserved;
	char message[256];                /* for people, when status is not 0 */
};

struct cnre_wire_segments {               /* both directions */
	struct cnre_wire_header header;
	int32_t status;
	uint32_t first;                   /* asked: from this number on; answered: number of the first descriptor */
	uint32_t count;                   /* answered: descriptors beside this message */
	uint32_t total;                   /* answered: segments that exist now */
};

/*
 * Any number of times for one namespace: the client has one channel and staging segment of it, and gets the same again.
 * A session ends all of its namespaces with it.
 */
struct cnre_wire_kv_open {
	struct cnre_wire_header header;
	uint32_t is_named;                /* 0: the namespace of the caller's user id */
	uint32_t reserved;
	uint64_t block_bytes_max;         /* -E2BIG if it does not fit the staging segment or a pool segment */
	char kv_namespace[CNRE_WIRE_KV_NAME_BYTES];
};

/* Descriptors of a successful KV_OPENED, in this order. */
enum { CNRE_KV_FD_DIRECTORY, CNRE_KV_FD_CHANNEL, CNRE_KV_FD_STAGING, CNRE_KV_FD_COUNT };

struct cnre_wire_kv_opened {
	struct cnre_wire_header header;
	int32_t status;                   /* 0, or -errno as cnre_kv_open returns it */
	uint32_t number;                  /* of the namespace: names it in what follows */
	char message[256];                /* for people, when status is not 0 */
};

struct cnre_wire_kv_segments {            /* both directions; as struct cnre_wire_segments */
	struct cnre_wire_header header;
	int32_t status;
	uint32_t number;
	uint32_t first, count, total;
	uint32_t reserved;
};

struct cnre_wire_kv_invalidate {          /* both directions */
	struct cnre_wire_header header;
	int32_t status;                   /* answered: blocks dropped, or -errno */
	uint32_t number;
	unsigned char root[32];
};

/* A client's wish for a policy. Any number of times: who asks for what is in force is answered 0, whatever the manager allows. */
struct cnre_wire_policy {                 /* both directions */
	struct cnre_wire_header header;
	int32_t status;                   /* answered: 0, or -errno as cnre_set_policy returns it */
	uint32_t reserved;
	char name[CNRE_NAME_BYTES];       /* asked: terminated, or it is none */
};

/*
 * The session's model in the memory of one device. Any number of times: a client has one ledger of each device, and gets the same
 * again, until the manager is another one.
 */
struct cnre_wire_vram_open {
	struct cnre_wire_header header;
	unsigned char uuid[16];           /* of the device */
};

/* Descriptors of a successful VRAM_OPENED, in this order. */
enum { CNRE_VRAM_FD_DIRECTORY, CNRE_VRAM_FD_LEDGER, CNRE_VRAM_FD_EXPORTER, CNRE_VRAM_FD_COUNT };

struct cnre_wire_vram_opened {
	struct cnre_wire_header header;
	int32_t status;                   /* 0; -ENODEV the manager has no memory of that device, -EACCES not for this client, … */
	uint32_t device;                  /* the manager's number of it */
	char message[256];                /* for people, when status is not 0 */
};

struct cnre_wire_detach {
	struct cnre_wire_header header;
};

struct cnre_wire_control {
	struct cnre_wire_header header;
	char text[];                      /* not terminated: header.bytes says how long */
};

struct cnre_wire_reply {
	struct cnre_wire_header header;
	int32_t status;
	uint32_t reserved;
	uint64_t text_bytes;              /* of the memfd beside this message; on failure a message in `text` and no memfd */
	char text[256];
};

/* Fills a header; message_bytes is the whole message. */
void cnre_wire_fill(struct cnre_wire_header *header, enum cnre_wire_type type, uint32_t id, size_t message_bytes);

/*
 * cnre_wire_send - one message, with descriptors
 *
 * Never raises SIGPIPE; does not wait if the socket is non-blocking.
 * Returns:  0, or -EINVAL (shorter than a header, longer than CNRE_WIRE_MESSAGE_MAX, too many descriptors), -EAGAIN (the peer does not read), -EPIPE, -ECONNRESET, …
 */
int cnre_wire_send(int socket, const void *message, size_t bytes, const int *fds, size_t fd_count);

/*
 * cnre_wire_receive - one message, with descriptors
 *
 * @buffer     CNRE_WIRE_MESSAGE_MAX bytes
 * @fds        room for CNRE_WIRE_FDS_MAX; received ones are CLOEXEC; the caller owns them. NULL: none are expected, a
 *             message that carries some is refused and not one of them is ever installed (ret_fd_count may be NULL too)
 *
 * Checks magic, version and that header.bytes is what arrived; what is behind the header is the caller's to check
 * (cnre_wire_expect). Descriptors of a refused message are closed.
 * Returns:  bytes of the message, 0 at end of file, or -EAGAIN, -EBADMSG, -EPROTO (another version), -ECONNRESET, …
 */
int cnre_wire_receive(int socket, void *buffer, int *fds, size_t *ret_fd_count);

/*
 * Sender: whether the peer has not read yet what was sent. Descriptors in flight count against the sender's user, whom the
 * kernel lets send none at all beyond a limit, so nobody gets a second message with some before it took the first (R27).
 */
int cnre_wire_has_unread(int socket);

/* Receiver: whether the next message says that it is of that type. It stays where it is. */
int cnre_wire_next_is(int socket, enum cnre_wire_type type);

/* 0 if the message is of that type and at least that long, else -EBADMSG. */
int cnre_wire_expect(const void *buffer, int received_bytes, enum cnre_wire_type type, size_t min_bytes);

#endif
