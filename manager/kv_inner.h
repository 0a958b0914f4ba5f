/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the KV store share; see kv.h. */
#ifndef CNRE_MANAGER_KV_INNER_H
#define CNRE_MANAGER_KV_INNER_H

#include "base/log.h"
#include "kvstore/block.h"
#include "kvstore/disk.h"
#include "kvstore/value.h"
#include "manager/extent.h"
#include "manager/kv.h"
#include "manager/loop.h"
#include "manager/worker.h"
#include "shm/access_log.h"
#include "shm/kv_channel.h"
#include "shm/kv_index.h"
#include "shm/word.h"

#define KV_SEGMENTS_WANTED 16u            /* a budget is cut into about so many, so that it can move in steps */
#define KV_SEGMENT_BYTES_MIN (2ull << 20)
#define KV_SEGMENT_BYTES_FIRST (32ull << 20) /* at most, of a namespace: somebody waits for it */
#define KV_PIN_SHARE 4u                   /* of the budget: what one client may lease at once */
#define KV_ENTRIES_MIN 256u
#define KV_ENTRIES_DEFAULT_MAX 65536u
#define KV_BLOCK_BYTES_LEAST (64ull << 10) /* so small a block has an entry, as long as the index is not too large: */
#define KV_INDEX_SHARE 32u                /* of the budget, for blocks in memory; */
#define KV_FILES_SHARE 16u                /* and for those that are in files only, */
#define KV_FILE_BYTES_LEAST (1ull << 20)  /* of so many bytes each */
#define KV_FOLDERS_AT_START 8u            /* namespaces that are made for folders of files before anybody opens them */
#define KV_STAGING_SHARE 2u               /* a block fits at least so many times into a staging segment */
#define KV_EVICTIONS_PER_TURN 64u         /* for one block; then whole runs are freed */
#define KV_DESCENTS_MAX 4096u             /* from a victim to a leaf: longer chains wait for the next try */
#define KV_DRAINING_MAX 64u               /* clients that have ended and left blocks; what more of them left is dropped */
#define KV_COPIES_MAX 4u                  /* blocks on their way from staging into the pool, over all clients */
#define KV_LOADS_MAX 16u                  /* blocks on their way from files */
#define KV_SAVES_MAX 8u                   /* blocks on their way into files */
#define KV_REMOVES_MAX 8u
#define KV_LOG_PER_TURN 2048u             /* uses of all clients that one turn takes up */
#define KV_LOG_SHARE 256u                  /* of one client */
#define KV_LOG_EVERY_NS 100000000LL       /* while somebody writes */
#define KV_LOG_IDLE_NS 1000000000LL
#define KV_TRIM_EVERY_NS 100000000LL      /* looks at what waits for leases to end */
#define KV_SAVE_RETRY_NS (30 * 1000000000LL) /* after a file could not be written */
#define KV_RESCAN_NS (5 * 1000000000LL)   /* other managers write to the same folders */
#define KV_MEMORY_RETRY_NS (30 * 1000000000LL) /* after a segment could not be made */
#define KV_YOUNG_NS (60 * 1000000000LL)
#define KV_VICTIMS_NS 1000000000LL        /* so long the least valuable blocks of one look are taken as such */
#define KV_REPORT_WORDS (1u << 20)        /* ledger words that one report looks at: a millisecond */
#define KV_DISK_SLOW_NS (5 * 1000000000LL) /* then status says so */
#define KV_CLOSE_NS (5 * 1000000000LL)
#define KV_NO_PLACE UINT64_MAX
#define KV_LOG_LINES 20u                  /* in 10 s */
#define KV_INDEX_PER_TURN 4096u           /* entries that a search for work looks at in one turn */

enum { /* what somebody does with an entry: it stays where it is */
	KV_DOING_SAVE = 1u << 0,
	KV_DOING_LOAD = 1u << 1,
	KV_DOING_REMOVE = 1u << 2,
	KV_DOING_COPY = 1u << 3,          /* filled soon; FREE until then */
	KV_DOING_EXPORT = 1u << 4,
};

struct kv_note {                          /* of one entry, for the manager alone; not kept over a restart */
	struct kv_use use;
	uint32_t doing;
	uint32_t uses;
	uint64_t used_tokens;
	int64_t save_after_ns;            /* not before: the last try failed */
	int64_t young_until_ns;           /* then it must be worth its bytes; before, the average one's uses are its own */
};

struct kv_segment {
	struct cnre_segment memory;
	int is_live, is_closing;
};

struct kv_making {                        /* a segment on its way, made by a worker: touching it takes its time */
	struct worker_job job;
	struct kv_namespace *space;
	struct cnre_segment memory;
	uint64_t bytes;
	int status, is_under_way;
	int64_t retry_ns;                 /* not before */
};

struct kv_scan {                          /* of a namespace's folder */
	struct kv_disk_job job;
	struct kv_namespace *space;
	struct kv_block found[KV_DISK_SCAN_BATCH];
	int is_under_way, is_whole;       /* is_whole: every file was seen once */
	int64_t next_ns;
};

struct kv_tally {
	uint64_t matches, hit_tokens, avoided_ns, published, publish_failed, present, evictions, loads, load_errors, saves,
		save_errors, invalidated, breaches;
};

struct kv_access;
struct kv_session;
struct kv_transfer;

#define KV_VICTIMS 16u

struct kv_victim {
	uint32_t index;
	uint32_t uses;                    /* then; one that was used since is none any more */
	uint64_t id;                      /* entries are used again */
	double value;
};

struct kv_victims {                       /* of one look at all entries, the least valuable first */
	struct kv_victim victim[KV_VICTIMS];
	uint32_t count, next;
	int64_t looked_ns;
};

struct kv_namespace {
	struct kv_store *store;
	uint32_t number;
	char name[CNRE_KV_NAME_BYTES];
	struct cnre_segment directory_segment;
	struct cnre_kv_directory *directory;
	struct cnre_kv_entry *entry;
	struct kv_note *note;
	uint32_t entry_count;
	uint32_t *unused;                 /* entries that are FREE and nobody fills */
	uint32_t unused_count;
	uint32_t *doomed;                 /* no longer found, and not FREE yet */
	uint32_t doomed_count;
	uint32_t doomed_files;            /* of them with a file still, as of the last sweep; never fewer than there are */
	struct extent_map map;            /* owners are entries */
	struct kv_segment *segment;       /* [CNRE_KV_SEGMENTS_MAX] */
	uint32_t segments_made;
	struct kv_making making;
	struct kv_victims victims;        /* of those in memory */
	uint64_t pool_bytes, resident_bytes, disk_bytes;
	uint32_t resident_blocks, disk_blocks;
	struct kv_folder *folder;         /* NULL: no files */
	struct kv_scan scan;
	uint32_t save_cursor, may_save;   /* may_save: entries looked at since something new was there */
	int64_t save_due_ns;              /* a failed save is tried again then */
	uint32_t saves;                   /* under way */
	struct kv_session *sessions;
	uint32_t session_count;
	struct kv_tally tally;
};

struct kv_copy {                          /* a block on its way into the pool */
	struct worker_job job;
	struct kv_namespace *space;
	struct kv_block block;
	const void *from;                 /* still the owner's until `ended` */
	int from_fd;                      /* of the segment it is in, whose pages its owner can take away; -1: none can */
	uint64_t from_off;
	void *to;
	uint32_t index;
	uint64_t place;
	int status;
	/* Core thread: 0 it is there, 1 another one is, or -errno: it is not. The copy is freed behind it. */
	void (*ended)(struct kv_copy *copy, int result);
	void *owner;
	uint32_t slot;                    /* of a client's request */
	struct cnre_kv_request request;   /* what was asked, to see that it still is */
};

struct kv_session {                       /* a client in a namespace */
	struct kv_session *next;
	struct session *session;          /* NULL: it has ended, and blocks that it handed over are stored still */
	struct kv_namespace *space;
	struct cnre_segment channel_segment, staging_segment;
	struct cnre_kv_channel *channel;  /* input */
	_Atomic uint64_t *ledger;         /* likewise */
	uint64_t pending;                 /* slots that want to be looked at */
	struct cnre_access_log_reader log;
	struct kv_copy *copy;             /* NULL: nothing is being copied for it */
	uint32_t number, place;           /* of its session, and in holder[] */
	int may_be_believed;              /* of our own user, or root */
};

struct kv_store {
	struct manager *manager;
	struct kv_namespace *space[CNRE_KV_NAMESPACES_MAX];
	uint32_t space_count;
	uint64_t budget_bytes;
	uint64_t staging_bytes;
	uint32_t blocks_max;              /* of each namespace; 0: by the budget */
	struct worker *copier;            /* blocks into the pool, and memory for them: engines compute meanwhile */
	struct kv_disk *disk;             /* NULL: no --kv-dir */
	struct loop_source copier_source, disk_source;
	uint64_t disk_limit_bytes;        /* 0: none */
	struct kv_session *draining;      /* clients that have ended */
	uint32_t draining_count;
	uint32_t copies, loads, removes;  /* under way */
	uint32_t turn;                    /* with whom the next one begins */
	int64_t log_due_ns, log_heard_ns, trim_due_ns;
	int has_more;
	int is_short;                     /* somebody found no memory since the last look at who holds it */
	struct kv_access *access;
	struct kv_transfer *transfer;     /* the last one; NULL: there was none */
	struct cnre_log_limit log_limit;
};

/* ---- kv_settings.c ---- */
int kv_settings_check_ram(const struct settings *settings, char message[KV_MESSAGE_BYTES]);

/* ---- kv_entry.c ---- */
enum cnre_state kv_state(const struct cnre_kv_entry *entry); /* or CNRE_KV_STATE_FREE */
int kv_is_indexed(const struct cnre_kv_entry *entry);
int kv_is_on_disk(const struct cnre_kv_entry *entry);
void kv_set_on_disk(struct kv_namespace *space, uint32_t index, int is_on_disk);
uint64_t kv_place(const struct cnre_kv_entry *entry);
uint64_t kv_room(uint64_t bytes);         /* that a payload takes in the pool */
void *kv_address(const struct kv_namespace *space, uint64_t place);
int kv_is_leased(const struct kv_namespace *space, uint32_t index);
/* An entry that nobody uses, and back. CNRE_KV_NONE: there is none. */
uint32_t kv_entry_take(struct kv_namespace *space);
void kv_entry_give(struct kv_namespace *space, uint32_t index);
/* What a block says, into an entry that is FREE, and out of one. */
void kv_entry_fill(struct kv_namespace *space, uint32_t index, const struct kv_block *block);
void kv_entry_tell(const struct cnre_kv_entry *entry, struct kv_block *ret_block);
/* Its words for clients; wakes who sleeps on them. */
void kv_entry_set(struct kv_namespace *space, uint32_t index, enum cnre_state state, enum cnre_load_error error, int moves);
/* READY with its payload at a place; LOADING into a place, which it keeps until it is READY or the read has ended. */
void kv_entry_ready(struct kv_namespace *space, uint32_t index, uint64_t place);
void kv_entry_loading(struct kv_namespace *space, uint32_t index, uint64_t place);
/* The incarnation whose read it is; and, when that has landed or failed, no memory and the next generation. */
uint32_t kv_loader_epoch(const struct cnre_kv_entry *entry);
void kv_entry_absent(struct kv_namespace *space, uint32_t index);
/* Memory back, by the rules of leases: ABSENT where there is a file, else FREE. 0, or -EBUSY: it stays as it was. */
int kv_entry_evict(struct kv_namespace *space, uint32_t index);
/* Nobody finds it any more; file, memory and entry go as soon as they can. */
void kv_entry_forget(struct kv_namespace *space, uint32_t index);
/* The same of all blocks of a root, at once: a namespace can be one parent's 65536 children. How many. */
uint32_t kv_entry_forget_root(struct kv_namespace *space, const unsigned char root[KV_KEY_BYTES]);
/* The second half of it, for what is in no chain already. */
void kv_entry_doom(struct kv_namespace *space, uint32_t index);
/* Looks at the forgotten ones. */
void kv_entry_sweep(struct kv_namespace *space);
/* A block of that name was forgotten, and its file is not removed yet: a new file must wait, and the old is not found. */
int kv_entry_is_going(const struct kv_namespace *space, const unsigned char key[KV_KEY_BYTES]);
/* Puts an entry that is not indexed among the forgotten. */
void kv_entry_doom(struct kv_namespace *space, uint32_t index);

/* ---- kv_namespace.c ---- */
/* The namespace that a client means, made if it is new. 0, -EACCES, -EINVAL, -ENOSPC, -ENOMEM, and why. */
int kv_namespace_find(struct kv_store *store, const struct session *session, const char *name, struct kv_namespace **ret_space,
		      char message[KV_MESSAGE_BYTES]);
/* By its full name, without asking who. */
int kv_namespace_named(struct kv_store *store, const char *name, struct kv_namespace **ret_space);
int kv_namespace_adopt(struct kv_store *store, uint32_t number, int fd);
void kv_namespace_close(struct kv_namespace *space);
void kv_namespace_persist(struct kv_namespace *space);

/* ---- kv_memory.c ---- */
/* Room for an entry. 0; -EAGAIN: a segment is on its way, ask again; -ENOSPC: everything is in use. */
int kv_memory_take(struct kv_namespace *space, uint64_t bytes, uint32_t index, uint64_t *ret_place);
void kv_memory_give(struct kv_namespace *space, uint64_t place);
void kv_memory_trim(struct kv_store *store); /* while there is more than the budget allows */
uint64_t kv_memory_bytes(const struct kv_store *store); /* that there is, and is being made */
int kv_memory_has_too_much(const struct kv_store *store);
void kv_memory_persist(struct kv_namespace *space);
int kv_memory_adopt(struct kv_namespace *space, uint32_t segment, int fd);

/* ---- kv_share.c ---- */
/*
 * Who gives a segment to a namespace that wants one, or NULL; the one with most; the segment that goes first, and how many
 * bytes are not on their way out.
 */
struct kv_namespace *kv_share_giver(const struct kv_namespace *space);
struct kv_namespace *kv_share_largest(const struct kv_store *store);
uint32_t kv_share_segment(const struct kv_namespace *space); /* CNRE_KV_NONE: it has none */
uint64_t kv_share_bytes(const struct kv_namespace *space);

/* What one client may lease at once: a quarter of the budget. */
uint64_t kv_pin_bytes_max(const struct kv_store *store);

/* ---- kv_evict.c ---- */
/* The block that is worth least and can go, a leaf; CNRE_KV_NONE: none can. on_disk: of those with a file. */
uint32_t kv_evict_choose(struct kv_namespace *space, int on_disk);
int kv_evict_one(struct kv_namespace *space); /* 0 or -ENOSPC */
/*
 * Clients that surely lease more than they may lose their channels (R19), in any namespace: memory moves between them. Not
 * where memory is wanted, but from the turn: there somebody may stand on a list of clients.
 */
void kv_evict_enforce(struct kv_store *store);

/* ---- kv_session.c ---- */
int kv_session_adopt(struct session *session, struct kv_namespace *space);
/*
 * Off every list. What it has handed over by now is stored still, unless it is to be dropped: an engine may end with its last
 * commit.
 */
void kv_session_end(struct kv_session *client, int drops);
void kv_session_drain(struct kv_store *store); /* a step for each client that has ended */
void kv_session_persist(struct kv_session *client);

/* ---- kv_adopt.c ---- */
int kv_adopt_namespaces(struct kv_store *store);

/* ---- kv_publish.c, kv_load.c ---- */
int kv_publish_serve(struct kv_session *client);
/* An ABSENT one with a file. 1: on its way, or it failed; 0: later. */
int kv_load_start(struct kv_namespace *space, uint32_t index);
int kv_load_serve(struct kv_session *client, uint32_t slot, const struct cnre_kv_request *request); /* 1: the slot is done */
/*
 * Begins to copy a block whose key is known, from memory that stays still. 0: `ended` will be called; 1: it is there already;
 * -EAGAIN: ask again; -ESTALE: no parent; -ENOSPC, -ENOMEM, -EINVAL.
 */
int kv_publish_begin(struct kv_namespace *space, const struct kv_copy *what, struct kv_copy **ret_copy);
/* In job.done of what was begun: stored if it is still wanted; then `ended`. */
void kv_publish_settle(struct kv_copy *copy, int is_wanted);

/* ---- kv_files.c ---- */
void kv_files_pump(struct kv_namespace *space, int64_t now_ns);
int kv_files_are_due(const struct kv_store *store); /* 1: some are being saved or removed, or could be now */
void kv_files_new(struct kv_namespace *space);       /* there may be something to save */
void kv_files_remove(struct kv_namespace *space, uint32_t index);

/* ---- kv_uses.c ---- */
void kv_uses_hold(struct kv_session *client, uint32_t index); /* it has the state of this block in its own rows now */
uint32_t kv_uses_follow(struct kv_session *client, uint32_t words); /* how many there were */

#endif
