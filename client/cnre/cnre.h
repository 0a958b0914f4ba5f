/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcnre: expert weights of a mixture-of-experts model, resident once per host and shared by every engine process.
 *
 * Names, fields and meaning in this file are fixed. It is extended only at the end of sized structs and by new
 * functions.
 *
 * ---- Read this before the first call ----
 *
 * Reservation   At attach a client declares how many bytes it may hold leased at once. It counts whole objects, the
 *               same expert once however often it is leased. Within the reservation a demand always finds room:
 *               pressure from other clients makes a call wait, never fail. Beyond it a single acquire is -ENOSPC at
 *               once, and a batch waits for its turn.
 * Leases        belong to the process: any thread may release what another acquired. Data is readable until the release
 *               and never changes: aligned to 64 bytes at least, followed by 64 readable bytes, and (view NULL)
 *               identical to the checkpoint's. Parts need not be adjacent. A lease never expires: a stopped process
 *               keeps what it holds. A struct cnre_expert may be moved by value; releasing two copies of it is a bug,
 *               which is -EINVAL as long as the library can tell. After the release the pointers are invalid although
 *               reading them may seem to work: other bytes will be there.
 * Deadlock      A thread that waits in a batch for its admission must hold no leases of its own that nobody else will
 *               give back: it gives its batch back before it waits in another.
 * Order         Floating-point sums depend on the order of terms, and arrival order depends on what other processes
 *               left resident. So take a batch with cnre_batch_wait in an order of your own; with cnre_batch_next
 *               keep every output and add in your own order afterwards. Choosing experts by residency (cnre_resident)
 *               lets other processes change your output.
 * Death         When this process ends, however it ends, all its leases end. When another client dies or is stopped,
 *               nothing changes here. When the manager is gone for good, hits go on and a miss is -EPIPE within a
 *               quarter of a second. Memory of a GPU dies with the manager: a release of it says -EPIPE then.
 * Restart       A manager that was killed, hung or was upgraded is continued by another one, which takes over memory,
 *               leases and sessions as they are: a client sees a pause and no error. In the pause hits go on; a miss,
 *               also one that waited already, waits until its own timeout and is read by the successor; prefetches are
 *               kept as far as there is room for them. Nobody has to attach again, and no lease is lost. Give a miss a
 *               timeout that a restart fits into (seconds), or -1. A successor that cannot take over (another layout
 *               or model) ends the sessions: misses are -EPIPE, what is leased stays readable; release, detach and
 *               attach again.
 * Descriptors   Each client keeps one, a socket, which no hit and no miss uses. A program that closes it (a daemon
 *               that closes everything) goes on with hits and misses, and what then has its number is left alone. But
 *               it no longer learns that the manager is gone: a miss with timeout -1 would wait for ever. Experts in
 *               memory that the manager added to the pool since are -EPIPE, and detach cannot say goodbye: the
 *               reservation lasts as long as the process. So attach after becoming a daemon. With
 *               VRAM there is one more for each GPU in use, by which a release learns that the manager is dead.
 * fork()        A child has no session: every call is -ECHILD there, cnre_detach frees private memory only, and a
 *               leased pointer is not mapped (a read faults). The parent is not affected. The child may attach anew.
 * Signals       No function may be called from a signal handler. Calls are not cancellation points, and a signal
 *               does not end a wait: they are restarted.
 * Threads       Every call may be made from any thread at any time, except cnre_detach, which must be the last
 *               call on its client, and cnre_batch_end on its batch (as fclose is for a FILE); likewise cnre_kv_close
 *               and cnre_kv_release, which come before the detach.
 * Versions      Library and manager must have the same layout version, else attach is -EPROTO. Sized structs carry
 *               their size: a shorter one of an older program is filled as far as it goes.
 * KV prefixes   A chain's blocks are leased as experts are, but count against a quota of their own, and a match over it
 *               is shorter. Copy and unpin: a chain that keeps its leases keeps their memory from everybody. What is
 *               staged and committed when the process or the manager dies is stored or not, never in part.
 * Not promised  A number of resident experts, a hit rate, which expert is evicted, the order of arrivals, or that a
 *               prefetch is done.
 *
 * ---- Conventions ----
 *
 * Functions return 0 or a count on success and -Exxx on failure. Outputs are written on success only, with one
 * exception: when one expert of a batch fails, its layer, expert and index are set and lease is 0. Timeouts are
 * relative nanoseconds: 0 polls, -1 waits for ever.
 *
 *   -EINVAL        a bad argument: fix the program
 *   -ENOENT        no such model, layer (a dense one has none) or expert
 *   -ETIMEDOUT     the time given passed; a missed poll has started the load
 *   -ENOSPC        more than the reservation, or no room to grant one; no memory for a KV block, too many KV namespaces
 *   -ENOMEM        this process is out of memory
 *   -EIO           unreadable on every replica
 *   -EBADMSG       bytes fail their check: a digest differs, or a message or segment makes no sense
 *   -EPIPE         the manager is gone for good, or its socket was closed here: detach and attach again. Of a release: the
 *                  manager that had a lease's VRAM is dead, compute again
 *   -ECHILD        called in a forked child
 *   -EACCES        the manager does not serve this user, or not in this KV namespace
 *   -EPERM         the manager's administrator keeps that to himself
 *   -ENOTSUP       family, view or function that this manager or library does not have
 *   -ENODEV        no such device, or no VRAM of it
 *   -ESTALE        the model in this directory is not what the manager serves; a dropped KV ancestor: match again
 *   -EPROTO        another layout version: upgrade one side
 *   -ENODATA       a KV block with media that have no digest: it cannot be named
 *   -E2BIG         KV blocks larger than the manager can take
 *   -EBUSY         this process has the model attached already, in the same view
 *   -EAGAIN        full now: try again later
 *   -ECONNREFUSED  no manager, and none could be started
 */
#ifndef CNRE_CNRE_H
#define CNRE_CNRE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct cnre;            /* one per process and model; every call is thread-safe */
struct cnre_batch;      /* one layer's selection */
struct cnre_kv;         /* one namespace + identity */
struct cnre_kv_chain;   /* a run of blocks from token 0 */

/* ---- attach ---- */
enum { CNRE_NO_AUTOSTART = 1u << 0, CNRE_WANT_VRAM = 1u << 1, CNRE_NO_EXPERTS = 1u << 2,
       CNRE_VRAM_OR_RAM = 1u << 3 };    /* cnre_acquire_vram: the copy in memory will do */

struct cnre_options {
	size_t      size;            /* sizeof(struct cnre_options) */
	const char *socket;          /* NULL: $CNRE_SOCKET, the system socket, the per-user one (started on demand); "none": fail at once */
	const char *name;            /* shown in cnrectl; NULL: program name */
	uint64_t    reserve_bytes;   /* most bytes leased at once; 0: (64 + top_k) largest experts, or 0 with CNRE_NO_EXPERTS */
	int64_t     timeout_ns;      /* for attach; -1: for ever */
	uint32_t    flags;
	uint64_t    private_bytes;   /* what this process itself will use (dense weights, KV): a started manager leaves it free */
	const char *view;            /* NULL: bytes as in the checkpoint; else a packing or sidecar the manager knows */
};

/*
 * cnre_attach - join the manager that serves a model
 *
 * Finds a manager (see `socket` in struct cnre_options), compares the model with what it serves, gets a reservation and
 * maps the pool read-only. The per-user manager is started when nobody listens there.
 *
 * @model    a checkpoint's directory (anything with a '/', or the name of a directory), or the name under which a
 *           running manager serves it
 * @options  NULL: all defaults, waiting for ever
 *
 * A directory is compared by its config.json and every shard's header: dense weights come from the engine's directory
 * and experts from the manager's, and two revisions mixed would be silent garbage. Shards that lie in further directories
 * are found by $CNRE_DIRS, which must say what --dir says to the manager. A manager that is started takes its
 * settings from $CNRE_RAM, $CNRE_VIEW, $CNRE_DIRS, $CNRE_MIRRORS, $CNRE_FAMILY, $CNRE_POLICY and $CNRE_KV_RAM, _DIR, _DISK; its
 * program is $CNRE_MANAGERD, else the one installed with this library, else the one in $PATH. timeout_ns 0 waits two
 * seconds at most for the answer of a manager. While a manager is being restarted the call waits for its successor.
 *
 * A view is another layout of the same experts, which the manager prepares once, before anybody sees them, and shares: one
 * that it serves (its --view; a manager started here serves `view` if it knows it), of the version that cnre_model tells.
 * Its objects, leases and memory are its own: a process may have a model attached once in each view.
 *
 * Returns:  0, or
 *           -EINVAL        no model, a bad size, a socket path over 107 bytes, or options this version does not know
 *           -ENOENT        no such model, or no such directory as $CNRE_DIRS names
 *           -EACCES        the manager is not for this user
 *           -ENOTSUP       the family or the view is not supported
 *           -ENOSPC        the reservation does not fit; the manager's log has the numbers
 *           -ESTALE        the manager serves another revision of the model, or found shards where $CNRE_DIRS does not look
 *           -EPROTO        another layout version
 *           -EBUSY         the model is attached already in this process, in this view
 *           -EBADMSG       a shard or an answer makes no sense
 *           -ETIMEDOUT     no answer in time
 *           -ECONNREFUSED  no manager and none could be started ("none": always)
 * Owns:     the client, until cnre_detach.
 * Threads:  any; may allocate and read files.
 * Since:    0.1
 * Source:   client/attach.c, client/session.c
 */
int  cnre_attach(struct cnre **ret_client, const char *model, const struct cnre_options *options);

/*
 * cnre_detach - leave the manager
 *
 * The last call on a client. With leases out the mappings and the session stay until the process ends, so that the data
 * stays readable; the model may be attached again meanwhile. NULL is fine. In a forked child it frees private memory.
 *
 * Threads:  none may be in another call of this client.
 * Blocks:   two seconds at most for streams (cnre_release_on_stream) that have not passed: leases that are then still out are
 *           out. One second at most for the manager's word. Where it does not come because the manager is stopped or being
 *           restarted, the goodbye stays in the socket and is read by whoever serves next.
 * Since:    0.1
 * Source:   client/attach.c
 */
void cnre_detach(struct cnre *client);

struct cnre_model_info {
	size_t size; char family[32]; unsigned char identity[32];
	uint32_t layer_count, expert_count, top_k, object_count;
	uint64_t expert_bytes_min, expert_bytes_max, total_bytes;
	uint32_t capabilities;       /* CNRE_CAP_* */
	uint64_t reserve_bytes;      /* granted to this client */
	uint64_t pool_bytes;         /* RAM of the expert pool now */
	/* Appended: the layout of parts and of all sizes above; "" and 0: as in the checkpoint. Read no version that you do not know. */
	char view[32];
	uint32_t view_version;
	uint32_t reserve_objects;    /* the same grant as reserve_bytes in different experts, whatever their size; 0: an older library */
};
enum { CNRE_CAP_EXPERT_CACHE = 1u << 0, CNRE_CAP_DIRECT_IO = 1u << 1, CNRE_CAP_MMAP = 1u << 2, CNRE_CAP_COMPRESSED_RAM = 1u << 3,
       CNRE_CAP_VRAM = 1u << 4, CNRE_CAP_KV_PREFIX = 1u << 5, CNRE_CAP_KV_PERSISTENCE = 1u << 6, CNRE_CAP_CONTINUOUS_BATCHING = 1u << 7 };

/*
 * cnre_model - what is attached
 *
 * @ret_info  its size member is set by the caller
 *
 * Layers are numbered as the checkpoint numbers them; dense layers have no experts; MTP rows count after the last
 * layer. A capability whose bit is not set is absent, not emulated. CNRE_CAP_VRAM is set while the manager serves memory of
 * some GPU, this client was attached with CNRE_WANT_VRAM, and it was not refused so far.
 *
 * Returns:  0, or -EINVAL, -ECHILD
 * Threads:  any. Blocks: never.
 * Since:    0.1
 * Source:   client/stats.c
 */
int  cnre_model(const struct cnre *client, struct cnre_model_info *ret_info);

struct cnre_stats {              /* of this client, since attach */
	size_t size;
	uint64_t requests, hits, joins, misses, prefetched, prefetch_hits, bytes_read, wait_ns, service_ns;
	uint64_t leased_bytes, resident_bytes, capacity_bytes;
	/* Appended. */
	uint64_t vram_hits;          /* of requests: served from the memory of a GPU */
};

/*
 * cnre_stats - what this client did since attach
 *
 * @ret_stats  its size member is set by the caller
 *
 * requests = hits + misses; joins are misses served by a load that another access or a prefetch began. bytes_read and
 * service_ns belong to the loads that this client's misses began; wait_ns is the time its threads were blocked.
 * prefetched counts accepted experts, prefetch_hits those of them that were asked for afterwards. leased_bytes is what
 * the client holds or waits for; resident_bytes and capacity_bytes are the manager's, of all models and clients.
 * vram_hits are those hits that cnre_acquire_vram had from a GPU, also after a wait, whose time is in wait_ns.
 *
 * Returns:  0, or -EINVAL, -ECHILD
 * Threads:  any. Blocks: never, but it looks at every object of the model.
 * Since:    0.1
 * Source:   client/stats.c
 */
int  cnre_stats(const struct cnre *client, struct cnre_stats *ret_stats);

/* ---- experts ---- */
enum cnre_role  { CNRE_GATE, CNRE_UP, CNRE_DOWN, CNRE_GATE_SCALE, CNRE_UP_SCALE, CNRE_DOWN_SCALE, CNRE_ROLES = 8 };
enum cnre_dtype { CNRE_BF16 = 1, CNRE_F16, CNRE_F32, CNRE_U8, CNRE_I8, CNRE_F8_E4M3, CNRE_F8_E8M0, CNRE_I64 };
enum cnre_tier  { CNRE_ABSENT, CNRE_LOADING, CNRE_RAM, CNRE_VRAM };
enum { CNRE_WAS_RESIDENT = 1u << 0, CNRE_JOINED = 1u << 1, CNRE_TRANSIENT = 1u << 2, CNRE_IN_VRAM = 1u << 3 };

struct cnre_part {               /* 32 bytes; bytes == 0: this model has no such part */
	const void *data;
	uint64_t    bytes;
	uint32_t    rows, columns;   /* as stored: elements of dtype; a packed int4 row of n weights has n/2 columns */
	uint16_t    dtype;
	uint16_t    block_rows, block_columns;   /* scale parts: weights one scale covers; 0: the whole extent */
	uint16_t    reserved;
};
struct cnre_expert {             /* size is frozen */
	uint64_t lease;              /* never 0 while held; release reads nothing else */
	uint32_t layer, expert;
	uint32_t index;              /* position in the batch's array */
	uint32_t flags;
	uint64_t bytes;
	int32_t  numa_node;
	uint32_t reserved0;
	struct cnre_part part[CNRE_ROLES];       /* indexed by role */
	uint64_t reserved[2];
};


/*
 * cnre_describe - shapes of an expert, without the expert
 *
 * Shape:    as cnre_acquire fills it, with data NULL and lease 0.
 * Returns:  0, or -EINVAL, -ENOENT, -ECHILD
 * Threads:  any. Blocks: never.
 * Since:    0.1
 * Source:   client/acquire.c
 */
int  cnre_describe(struct cnre *client, uint32_t layer, uint32_t expert, struct cnre_expert *ret_expert);  /* geometry, no lease, data NULL */

/*
 * cnre_acquire - lease one expert and wait until it can be read
 *
 * A hit is a few atomic instructions: no system call, no lock, no allocation. A miss is read once, whoever asks; who
 * comes later joins.
 *
 * @timeout_ns  0 polls: a miss is -ETIMEDOUT and has started the load
 *
 * Shape:    part[role] for each role that the model has (bytes 0: it has none), rows x columns as stored, row-major.
 *           flags: CNRE_WAS_RESIDENT for a hit, CNRE_JOINED for a miss that another access or a prefetch had begun,
 *           none for the miss that started the load.
 * Returns:  0, or
 *           -ETIMEDOUT  not readable in time; the load goes on
 *           -ENOSPC     it would be more than the reservation
 *           -ENOENT     no such expert
 *           -EIO        unreadable on every replica; nothing is cached, the next acquire tries again
 *           -EBADMSG    its digest differs, on every replica
 *           -EPIPE      it is not resident and the manager is gone for good (a restart is only a pause)
 *           -EINVAL, -ECHILD
 * Owns:     one lease, given back by cnre_release from any thread of this process.
 * Threads:  any.
 * Blocks:   on a miss, at most timeout_ns. When the pool has grown, its new memory is mapped first, which takes an answer
 *           of the manager: within timeout_ns, or 50 ms where that is less.
 * Order:    everything that the manager wrote to the data happens before the return.
 * Since:    0.1
 * Source:   client/acquire.c, client/wait.c; protocol in doc/shared-memory.md
 */
int  cnre_acquire(struct cnre *client, uint32_t layer, uint32_t expert, int64_t timeout_ns, struct cnre_expert *ret_expert);

/*
 * cnre_release - give a lease back
 *
 * Reads only expert->lease and clears it. A cleared struct is nothing to release and returns 0. It takes leases of memory and
 * of VRAM; of the latter, kernels that read it must have completed, or cnre_release_on_stream is the call.
 *
 * Returns:  0, or -EINVAL (not a lease of this client, or a copy of one that was released), -ECHILD; of VRAM also
 *           -EPIPE  it is given back, but the manager that had the memory is dead: what was computed from it may be wrong
 * Threads:  any, also another than the one that acquired. Blocks: never; of VRAM one system call.
 * Order:    reads of the data before the call happen before its memory is used again.
 * Since:    0.1
 * Source:   client/acquire.c, client/lease.c, client/vram_lease.c
 */
int  cnre_release(struct cnre *client, struct cnre_expert *expert);


/*
 * cnre_batch_begin - ask for one layer's selection at once
 *
 * The leases of all experts are raised and the missing ones asked for when this returns, or, if they do not fit the
 * reservation beside what the client holds now, as soon as they do: whole batches, first come first served. The caller
 * then takes them one by one, each index once.
 *
 * @experts      copied; duplicates are allowed, each index has a lease of its own
 * @token_count  tokens that the selection stands for: 500 for the union of a prefill of 500 rows
 *
 * Returns:  0, or
 *           -ENOSPC   more different experts than the reservation: it can never fit
 *           -ENOENT   no such expert
 *           -ENOMEM, -EINVAL, -ECHILD
 * Owns:     the batch, until cnre_batch_end.
 * Threads:  any; several may take from one batch.
 * Blocks:   never; allocates when no earlier batch of that size can be used again.
 * Since:    0.1
 * Source:   client/batch.c, client/admission.c
 */
int  cnre_batch_begin(struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count, uint32_t token_count,
                      struct cnre_batch **ret_batch);

/*
 * cnre_batch_wait - take one expert of a batch, in the caller's order
 *
 * The normal call: everything is on its way since begin, so an order of your own loses no overlap, and keeps sums the
 * same from run to run. After -ETIMEDOUT the index can be waited for again; after any other error its lease is given
 * back.
 *
 * @index       position in the array of cnre_batch_begin
 * @timeout_ns  covers the wait for admission, too
 *
 * Returns:  0, or -EINVAL (no such index, or it was taken), otherwise as cnre_acquire but for -ENOSPC and -ENOENT. On a
 *           failure of this expert layer, expert and index of *ret_expert are set and lease is 0; the others go on.
 * Owns:     the lease, given back by cnre_release, before or after cnre_batch_end.
 * Threads:  any.
 * Blocks:   at most timeout_ns; never on a hit of an admitted batch. (cnre_acquire says what a pool that grew adds.)
 * Since:    0.1
 * Source:   client/batch.c, client/wait.c
 */
int  cnre_batch_wait(struct cnre_batch *batch, uint32_t index, int64_t timeout_ns, struct cnre_expert *ret_expert); /* the caller's order */

/*
 * cnre_batch_next - take whichever expert of a batch can be read
 *
 * For callers that keep each output and add in an order of their own afterwards: arrival order depends on what other
 * processes left resident, and so would a sum in that order.
 *
 * Returns:  1 one was taken, 0 none is left, or -ETIMEDOUT, or an error of one expert as cnre_batch_wait gives it
 * Owns, Threads, Blocks: as cnre_batch_wait.
 * Since:    0.1
 * Source:   client/batch.c
 */
int  cnre_batch_next(struct cnre_batch *batch, int64_t timeout_ns, struct cnre_expert *ret_expert);                 /* arrival order; 1 got one, 0 done */

/*
 * cnre_batch_end - the last call on a batch
 *
 * Gives back what was not taken. What was taken stays leased until its own cnre_release. NULL is fine.
 *
 * Returns:  0, or -ECHILD
 * Threads:  none may be in another call of this batch. Blocks: never.
 * Since:    0.1
 * Source:   client/batch.c
 */
int  cnre_batch_end(struct cnre_batch *batch);


/*
 * cnre_prefetch - say what will probably be wanted
 *
 * Advisory: holds no lease, is read after every demand, may be dropped, and expires when this client begins that layer.
 *
 * Returns:  how many were accepted: those that are absent and were asked for. Or -ENOENT, -EINVAL, -EPIPE, -ECHILD
 * Threads:  any. Blocks: never.
 * Since:    0.1
 * Source:   client/prefetch.c
 */
int  cnre_prefetch(struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count);

/*
 * cnre_resident - where experts are now
 *
 * @ret_tiers  [count] enum cnre_tier; may be otherwise by the time the caller looks
 *
 * Takes no lease and counts as no access. CNRE_VRAM is said of devices that this client has named in cnre_acquire_vram. An
 * engine that chooses experts by residency lets other processes change its output.
 *
 * Returns:  0, or -ENOENT, -EINVAL, -ECHILD
 * Threads:  any. Blocks: never.
 * Since:    0.1
 * Source:   client/prefetch.c
 */
int  cnre_resident(struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count, uint8_t *ret_tiers);

/*
 * cnre_token_end - so many tokens are done (statistics only; the policy's clock is layer visits)
 *
 * Threads:  any. Blocks: never.
 * Since:    0.1
 * Source:   client/stats.c
 */
void cnre_token_end(struct cnre *client, uint32_t token_count);      /* statistics only */

/* ---- VRAM ---- */

/*
 * cnre_acquire_vram - lease one expert in the memory of a GPU
 *
 * A hit is a few atomic instructions, as cnre_acquire's; the first one on a device loads the CUDA driver into this process and
 * makes the device's primary context, the first one in an arena maps it. What lies in VRAM is the manager's choice, made for all
 * clients from what they ask for: asking for an expert here is what brings it there.
 *
 * @device      as this process numbers them for CUDA (after CUDA_VISIBLE_DEVICES); the manager is asked for the same GPU or MIG
 *              instance by its UUID
 * @timeout_ns  0 polls
 *
 * Where the expert is not in VRAM, the flags of cnre_attach decide. With CNRE_VRAM_OR_RAM the call does what cnre_acquire does,
 * and gives its copy in memory: flags without CNRE_IN_VRAM, part[].data pointers of the host. Without it the call waits until
 * the expert is in VRAM, which may be never; it is read into memory meanwhile. A reservation that leases on streams fill is
 * waited for, two seconds at most.
 *
 * Shape:    as cnre_acquire, and CNRE_IN_VRAM in flags: part[].data are device pointers then, which the caller only reads
 *           although the driver would let it write. CNRE_WAS_RESIDENT for what waited for nothing.
 * Returns:  0, or
 *           -ENODEV     attached without CNRE_WANT_VRAM, no driver, no memory of that device is served, or it is lost. With
 *                       CNRE_VRAM_OR_RAM only for a device that this process does not have
 *           -EACCES     the manager does not trust this user with it (--vram-trust)
 *           -ETIMEDOUT  not in VRAM in time
 *           -ENOSPC     more different experts leased in VRAM than the reservation: they count apart from those in memory
 *           -ENOENT     no such expert
 *           -EIO        the driver does not open the manager's memory here
 *           -EPIPE      the manager is gone for good (a restart is only a pause, after which VRAM is empty)
 *           -ENOMEM, -EBADMSG, -EINVAL, -ECHILD
 *           With CNRE_VRAM_OR_RAM what keeps VRAM from serving is no error: the call ends as cnre_acquire's.
 * Owns:     one lease, given back by cnre_release or cnre_release_on_stream from any thread of this process.
 * Threads:  any. The CUDA context that is current in the calling thread stays so.
 * Blocks:   as said, at most timeout_ns; on the first use of a device for the driver and for an answer of the manager: within
 *           timeout_ns, or 50 ms where that is less or CNRE_VRAM_OR_RAM is set. A refusal is remembered for a second.
 * Order:    the upload is complete, for every stream of this process, before the return.
 * Since:    0.1
 * Source:   client/vram_acquire.c, client/vram_table.c, client/vram_arena.c; shared words in shm/vram.h
 */
int  cnre_acquire_vram(struct cnre *client, uint32_t layer, uint32_t expert, int device, int64_t timeout_ns, struct cnre_expert *ret_expert);

/*
 * cnre_release_on_stream - give a lease back when a CUDA stream has passed this point
 *
 * For kernels and copies that are queued and not yet done. An event is recorded in the stream; a thread of the library, which
 * begins with the first such call, gives the lease back when the stream has passed it, or has failed. A stream that hangs keeps
 * its own leases and no others. Leases of memory are taken, too: of experts that a copy to the device still reads.
 *
 * @cu_stream  a CUstream or cudaStream_t of the lease's device; of a lease of memory: of a device that cnre_acquire_vram was
 *             called for. NULL is the default stream
 *
 * Returns:  0 the lease is the library's, and cleared here; or
 *           -EPIPE   likewise, and the manager that had the memory is dead: what is computed from it may be wrong
 *           -EAGAIN  1024 points are pending: the lease is still the caller's, who may wait for the stream and cnre_release
 *           -ENODEV  attached for no VRAM, or no device of this process works; still the caller's
 *           -EINVAL  no stream of that device, or one of which a graph is being captured, a default stream of a lease of memory
 *                    where several devices are in use, or no lease of this client
 *           -ENOMEM, -ECHILD
 * Threads:  any. Blocks: never, beyond what the driver takes to record an event.
 * Order:    what the stream reads before this point happens before the memory is used again.
 * Since:    0.1
 * Source:   client/vram_point.c
 */
int  cnre_release_on_stream(struct cnre *client, struct cnre_expert *expert, void *cu_stream);

/* ---- KV prefixes ---- */
enum { CNRE_KV_CHECKPOINTS = 1u << 0 };  /* identity flag: only positions committed with CNRE_KV_POINT can be resumed */
enum { CNRE_KV_POINT = 1u << 0 };        /* commit flag */

struct cnre_kv_identity {
	size_t size;
	const char *tokenizer, *chat_template;   /* may be NULL */
	const char *position;                    /* RoPE and position configuration */
	const char *representation;              /* layout, geometry, quantisation of the state, backend if bits matter */
	uint32_t    version;
	const unsigned char *adapter_digest; size_t adapter_digest_bytes;
	const char *salt;
	uint32_t    block_tokens;                /* 0: 64 */
	uint64_t    block_bytes_max;
	uint32_t    flags;
};
struct cnre_kv_media { uint64_t token_offset, token_count; const unsigned char *digest; size_t digest_bytes; }; /* digest NULL: nothing from here on is matched or stored */

/*
 * cnre_kv_open - open a namespace of computed prefixes for one identity
 *
 * Everything that the state depends on beside the tokens belongs into the identity: two that differ in any field share
 * nothing. The first open of a namespace asks the manager and maps it, which lasts until cnre_detach; each further one
 * costs a hash, so one per tenant salt is fine. The first open also looks at the checkpoint's shards (times, and 16 pages of
 * each): open before or right after the weights are read, since what is there now is what the prefixes are computed from.
 *
 * @kv_namespace  1..63 of A-Z a-z 0-9 . _ -, or NULL: the caller's uid
 * @identity      copied; a shorter struct of an older program has zeros at its end. block_tokens 0: 64, at most 256.
 *                block_bytes_max: largest payload that will be staged; 0: none, to match and route only
 *
 * Returns:  0, or
 *           -ENOENT, -EIO  the checkpoint cannot be read any more
 *           -ENOTSUP    the manager has no KV store
 *           -EACCES     it does not let this user have that namespace
 *           -E2BIG      blocks of block_bytes_max do not fit
 *           -ENOSPC     more namespaces than a client (8) or its user may have
 *           -ETIMEDOUT  no answer in 30 s
 *           -EPIPE      the manager is gone for good
 *           -EBADMSG, -EINVAL, -ENOMEM, -ECHILD
 * Owns:     the identity, until cnre_kv_close.
 * Threads:  any.
 * Blocks:   for the manager's answer where it has to be asked, never otherwise; allocates.
 * Since:    0.1
 * Source:   client/kv_open.c, client/kv_space.c; names in kvstore/key.h
 */
int  cnre_kv_open(struct cnre *client, const char *kv_namespace, const struct cnre_kv_identity *identity, struct cnre_kv **ret_kv);

/*
 * cnre_kv_close - close an identity
 *
 * Its chains keep what they need of it. NULL is fine. Release the chains and close before cnre_detach.
 *
 * Threads:  none may be in another call of it. Blocks: never.
 * Since:    0.1
 * Source:   client/kv_open.c
 */
void cnre_kv_close(struct cnre_kv *kv);

/*
 * cnre_kv_match - lease the longest stored prefix of a conversation
 *
 * Exact to the token where the state can be cut: the last block may be usable in part, and a block is compared by its
 * tokens, not only by its hash. With CNRE_KV_CHECKPOINTS the match ends at the last position that was committed with
 * CNRE_KV_POINT. What is in a file is part of the match, and its read has been asked for when this returns. A match
 * over the client's quota is shorter, never an error.
 *
 * @tokens, count  match one token less than there are: one must remain to be computed
 * @media          what overlaps the tokens, in any order; offsets count from token 0 of the conversation. Nothing at or
 *                 behind an item whose digest is NULL is matched
 *
 * Returns:  tokens covered, or -EINVAL, -ENOMEM, -ECHILD
 * Owns:     *ret_chain, set on success also when nothing was covered, until cnre_kv_release; its blocks stay readable
 *           until cnre_kv_unpin.
 * Threads:  any.
 * Blocks:   never; allocates the chain.
 * Since:    0.1
 * Source:   client/kv_match.c, client/kv_run.c
 */
int  cnre_kv_match(struct cnre_kv *kv, const int32_t *tokens, size_t count, const struct cnre_kv_media *media, size_t media_count,
                   struct cnre_kv_chain **ret_chain);                                   /* tokens covered; returns at once */

/*
 * cnre_kv_block - the bytes of one block of a chain
 *
 * @index       of the blocks that the match covered, from 0
 * @timeout_ns  0 polls: what is in a file is -ETIMEDOUT, and its read goes on
 * @ret_bytes   of the whole payload, also when only some of its tokens are usable
 *
 * Returns:  usable tokens of the block: all but for the last one of a match; 0 past the end, the outputs untouched; or
 *           -ETIMEDOUT  not readable in time
 *           -EIO        its file is unreadable, here and at every further call of this chain
 *           -EBADMSG    its file is not what its name says
 *           -ENOSPC     no memory for it could be had
 *           -EPIPE      it is not in memory and the manager is gone for good (a restart is only a pause)
 *           -ESTALE     the chain was unpinned
 *           -EINVAL, -ECHILD
 *           After a failed read compute from here on; the other blocks are good. The chain still stands behind the match:
 *           to store the failed block again, match again.
 * Owns:     the chain owns the data until cnre_kv_unpin or cnre_kv_release.
 * Threads:  any, several at once; none while the chain is unpinned or released.
 * Blocks:   on what is in a file, at most timeout_ns; when the pool has grown, for an answer of the manager as cnre_acquire.
 * Order:    everything that was written to the block happens before the return.
 * Since:    0.1
 * Source:   client/kv_block.c, client/kv_map.c
 */
int  cnre_kv_block(const struct cnre_kv_chain *chain, size_t index, int64_t timeout_ns, const void **ret_data, uint64_t *ret_bytes);
                                                                                         /* usable tokens of the block, 0: past the end */

/*
 * cnre_kv_unpin - give the leases of a chain back after copying
 *
 * The chain can still be extended. Twice is once.
 *
 * Returns:  0, or -EINVAL, -ECHILD
 * Threads:  any; none may be in cnre_kv_block of this chain. Blocks: never.
 * Since:    0.1
 * Source:   client/kv_chain.c
 */
int  cnre_kv_unpin(struct cnre_kv_chain *chain);                                        /* copied: leases back, chain can still be extended */

/*
 * cnre_kv_stage - get a buffer for the next block, unless it is there already
 *
 * The next block is the one behind the whole blocks that the chain has: those that the match covered in full, those that
 * were committed, and those that were there already. A partial block (count less than block_tokens) is a leaf: the chain
 * does not move over it, and a longer one may follow on the same place. A chain has one staged block; another stage
 * gives the first one up.
 *
 * @block_tokens  tokens of this block; copied
 * @count         1..block_tokens of the identity
 * @media         as for cnre_kv_match: offsets count from token 0 of the conversation
 * @bytes         of the payload, 1..block_bytes_max
 *
 * Returns:  0 fill *ret_buffer and commit, 1 it is there already (the chain has advanced over it if it is a whole one), or
 *           -EAGAIN   no staging room now: compute on, and store later or not at all
 *           -ENODATA  media without a digest lie in or before the block: it cannot be named; store nothing from here on
 *           -ESTALE   an ancestor was dropped or not stored: match again
 *           -EPIPE    the manager is gone for good
 *           -EINVAL, -ENOMEM, -ECHILD
 * Owns:     *ret_buffer, aligned to 4096 bytes, is the caller's to fill until cnre_kv_commit, the next cnre_kv_stage or
 *           cnre_kv_release of the chain.
 * Threads:  any, one at a time per chain. Blocks: never; no allocation.
 * Since:    0.1
 * Source:   client/kv_stage.c, client/kv_staging.c
 */
int  cnre_kv_stage(struct cnre_kv_chain *chain, const int32_t *block_tokens, size_t count, const struct cnre_kv_media *media,
                   size_t media_count, uint64_t bytes, void **ret_buffer);              /* 0 fill it, 1 there already, -EAGAIN no staging now */

/*
 * cnre_kv_commit - hand the staged block over
 *
 * Never waits: copying, digest and disk come later, and a block that failed is simply not found. The chain can be extended
 * on a whole block at once.
 *
 * @compute_ns  what computing it cost, which is what keeping it saves
 * @flags       CNRE_KV_POINT: its end can be resumed where the identity says CNRE_KV_CHECKPOINTS
 *
 * Returns:  0, or -ESTALE, -EPIPE as cnre_kv_stage (the staged block is given up), -EINVAL (also: nothing is staged), -ECHILD
 * Owns:     the buffer of cnre_kv_stage is not the caller's any more.
 * Threads:  any, one at a time per chain. Blocks: never; no allocation.
 * Order:    what the caller wrote to the buffer before is what is stored.
 * Since:    0.1
 * Source:   client/kv_commit.c, client/kv_post.c; protocol in shm/kv_channel.h
 */
int  cnre_kv_commit(struct cnre_kv_chain *chain, uint64_t compute_ns, uint32_t flags);  /* hands over, never waits */

/*
 * cnre_kv_release - the last call on a chain
 *
 * Gives its leases back and its staged block up; committed ones are stored all the same. NULL is fine. Before cnre_detach.
 *
 * Threads:  none may be in another call of it. Blocks: never.
 * Since:    0.1
 * Source:   client/kv_chain.c
 */
void cnre_kv_release(struct cnre_kv_chain *chain);

/*
 * cnre_kv_route - which client holds the longest prefix
 *
 * So that a front end can send the request there before anyone copies. The answer may be outdated when it is read.
 *
 * @tokens, media    as cnre_kv_match
 * @ret_client_name  [size] name of the client that used the deepest block last and is still there, cut to fit; empty if
 *                   there is none. NULL: only ask how much is covered
 *
 * Returns:  tokens covered, as cnre_kv_match, whatever the quota; or -EINVAL, -ENOMEM, -ECHILD
 * Threads:  any.
 * Blocks:   never; allocates; no lease is left, nothing is read and no use is counted.
 * Since:    0.1
 * Source:   client/kv_route.c
 */
int  cnre_kv_route(struct cnre_kv *kv, const int32_t *tokens, size_t count, const struct cnre_kv_media *media, size_t media_count,
                   char *ret_client_name, size_t size);                                 /* tokens covered; name NULL: probe, no lease */

/*
 * cnre_kv_invalidate - drop every block of this namespace and identity
 *
 * Blocks that are leased are found by nobody any more and end with their leases.
 *
 * Returns:  blocks dropped, or -ETIMEDOUT (no answer in 30 s), -EPIPE, -EINVAL, -ECHILD
 * Threads:  any. Blocks: for the manager's answer.
 * Since:    0.1
 * Source:   client/kv_invalidate.c
 */
int  cnre_kv_invalidate(struct cnre_kv *kv);                                            /* blocks dropped */

/*
 * cnre_set_policy - ask the manager for a residency policy
 *
 * What is evicted is decided for all clients of a manager at once, so its administrator says whose wishes are followed:
 * by default, nobody's on a manager that was started by hand or by the system, and those of its own user on one that was
 * started on demand (--client-policy of cnre-managerd). Whoever may not set it may still ask for what is in force.
 *
 * @name  as `cnrectl policy` takes it
 *
 * Returns:  0 it is in force, for whoever is attached and whoever comes, also after a restart; or
 *           -EPERM      another one is in force, and this client may not change it
 *           -ENOENT     no such policy
 *           -EAGAIN     a client changed it less than a second ago
 *           -ETIMEDOUT  no answer in 30 s
 *           -EPIPE      the manager is gone for good
 *           -EINVAL (also: the policy has a pool a layer, and the manager was started with another), -ENOMEM, -ECHILD
 * Threads:  any.
 * Blocks:   for the manager's answer.
 * Since:    0.1
 * Source:   client/policy.c, manager/client_policy.c
 */
int  cnre_set_policy(struct cnre *client, const char *name);

/*
 * cnre_version - version of the library that runs, such as "0.1.0"
 *
 * Threads:  any, also in a forked child. Blocks: never.
 * Since:    0.1
 * Source:   client/stats.c
 */
const char *cnre_version(void);

#ifdef __cplusplus
}
#endif
#endif
