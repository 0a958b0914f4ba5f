/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol of VRAM by hand; see vram_raw.h. */
#include "tests/support/vram_raw.h"

#include "base/fingerprint.h"
#include "shm/access_log.h"
#include "shm/ledger.h"
#include "shm/word.h"
#include "tests/support/fake_gpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%.107s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	return fd < 0 ? -errno : fd;
}

static void *map(int fd, int protection)
{
	struct stat status;
	void *base = fstat(fd, &status) < 0 ? MAP_FAILED : mmap(NULL, (size_t)status.st_size, protection, MAP_SHARED, fd, 0);

	return base == MAP_FAILED ? NULL : base;
}

static int ask(struct vram_raw *raw, const void *message, size_t bytes, char *buffer, int *fds, size_t *fd_count)
{
	int r = cnre_wire_send(raw->socket, message, bytes, NULL, 0);

	*fd_count = 0;
	if (r == 0)
		r = cnre_wire_receive(raw->socket, buffer, fds, fd_count);
	return r > 0 ? 0 : r == 0 ? -EPIPE : r;
}

int vram_raw_attach(struct vram_raw *raw, const char *socket, const char *model, uint64_t reserve_bytes)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	const struct cnre_wire_welcome *welcome = (const void *)buffer;
	struct cnre_wire_hello hello = {.by_path = 1, .reserve_bytes = reserve_bytes, .name = "raw"};
	struct cnre_fingerprint print;
	int fds[CNRE_WIRE_FDS_MAX];
	size_t count;
	int r = cnre_fingerprint_directory(model, &print, NULL, 0);

	memset(raw, 0, sizeof *raw);
	raw->exporter = raw->directory_fd = -1;
	if (r < 0)
		return r;
	memcpy(hello.identity, print.identity, sizeof hello.identity);
	(void)snprintf(hello.model, sizeof hello.model, "%s", model);
	cnre_wire_fill(&hello.header, CNRE_WIRE_HELLO, 1, sizeof hello);
	raw->socket = connect_to(socket);
	if (raw->socket < 0)
		return raw->socket;
	r = ask(raw, &hello, sizeof hello, buffer, fds, &count);
	if (r < 0 || welcome->status < 0)
		return r < 0 ? r : welcome->status;
	raw->reserve_slabs = welcome->reserve_slabs;
	raw->page = map(fds[CNRE_FD_PAGE], PROT_READ);
	raw->catalog = map(fds[CNRE_FD_CATALOG], PROT_READ);
	raw->channel = map(fds[CNRE_FD_CHANNEL], PROT_READ | PROT_WRITE);
	for (size_t i = 0; i < count; i++)
		(void)close(fds[i]);
	return raw->page == NULL || raw->channel == NULL ? -ENOMEM : 0;
}

static void first_uuid(unsigned char *uuid)
{
	CUuuid first;

	(void)fake_gpu.cuInit(0);
	(void)fake_gpu.cuDeviceGetUuid_v2(&first, 0);
	memcpy(uuid, first.bytes, CNRE_VRAM_UUID_BYTES);
}

int vram_raw_open(struct vram_raw *raw, const unsigned char *uuid)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	const struct cnre_wire_vram_opened *opened = (const void *)buffer;
	struct cnre_wire_vram_open request = {0};
	int fds[CNRE_WIRE_FDS_MAX];
	size_t count;
	int r;

	if (uuid == NULL)
		first_uuid(request.uuid);
	else
		memcpy(request.uuid, uuid, sizeof request.uuid);
	cnre_wire_fill(&request.header, CNRE_WIRE_VRAM_OPEN, 5, sizeof request);
	r = ask(raw, &request, sizeof request, buffer, fds, &count);
	if (r < 0)
		return r;
	if (opened->header.type != CNRE_WIRE_VRAM_OPENED || opened->header.id != 5)
		return -EBADMSG;
	(void)snprintf(raw->message, sizeof raw->message, "%.255s", opened->message);
	if (opened->status < 0)
		return count == 0 ? opened->status : -EBADMSG;
	if (count != CNRE_VRAM_FD_COUNT)
		return -EBADMSG;
	raw->device = opened->device;
	raw->directory = map(fds[CNRE_VRAM_FD_DIRECTORY], PROT_READ);
	raw->ledger = map(fds[CNRE_VRAM_FD_LEDGER], PROT_READ | PROT_WRITE);
	raw->exporter = fds[CNRE_VRAM_FD_EXPORTER];
	raw->directory_fd = fds[CNRE_VRAM_FD_DIRECTORY];
	(void)close(fds[CNRE_VRAM_FD_LEDGER]);
	return raw->directory == NULL || raw->ledger == NULL ? -ENOMEM : 0;
}

void vram_raw_close(struct vram_raw *raw)
{
	if (raw->socket >= 0)
		(void)close(raw->socket);
	if (raw->exporter >= 0)
		(void)close(raw->exporter);
	if (raw->directory_fd >= 0)
		(void)close(raw->directory_fd);
	raw->socket = raw->exporter = raw->directory_fd = -1;
}

int vram_raw_detach(struct vram_raw *raw)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct cnre_wire_detach detach = {.header = {0}};
	int fds[CNRE_WIRE_FDS_MAX], r;
	size_t count;

	cnre_wire_fill(&detach.header, CNRE_WIRE_DETACH, 9, sizeof detach);
	r = ask(raw, &detach, sizeof detach, buffer, fds, &count);
	vram_raw_close(raw);
	return r;
}

int vram_raw_try(struct vram_raw *raw, uint32_t object)
{
	(void)cnre_ledger_add(&raw->ledger->word[object]);
	if (cnre_word_state(cnre_ledger_load_state(&raw->directory->entry[object])) == CNRE_STATE_READY) {
		vram_raw_log(raw, CNRE_LOG_ACCESS, CNRE_LOG_HIT | CNRE_LOG_VRAM_WANTED | CNRE_LOG_VRAM_HIT, object);
		return 1;
	}
	(void)cnre_ledger_undo(&raw->ledger->word[object]);
	return 0;
}

void vram_raw_release(struct vram_raw *raw, uint32_t object)
{
	(void)cnre_ledger_sub(&raw->ledger->word[object]);
}

void vram_raw_log(struct vram_raw *raw, enum cnre_log_kind kind, uint32_t argument, uint32_t value)
{
	cnre_access_log_put(cnre_access_log_of(raw->channel), raw->log_position++, kind, argument, value);
}

enum cnre_state vram_raw_state(const struct vram_raw *raw, uint32_t object)
{
	return cnre_word_state(cnre_ledger_load_state(&raw->directory->entry[object]));
}

uint32_t vram_raw_ready(const struct vram_raw *raw)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < raw->directory->object_count; i++)
		count += vram_raw_state(raw, i) == CNRE_STATE_READY;
	return count;
}

int vram_raw_read(struct vram_raw *raw, uint32_t object, uint32_t role, void *to, size_t bytes)
{
	const struct cnre_catalog_object *objects = (const void *)((const char *)raw->catalog + raw->catalog->objects_off);
	/* [TV1] relaxed: a test's look, under READY. */
	uint64_t place = atomic_load_explicit(&raw->directory->entry[object].place, memory_order_relaxed);
	uint32_t arena = cnre_place_segment(place);
	CUipcMemHandle handle;
	CUcontext context, popped;
	CUdeviceptr base;
	int r = -EIO;

	memcpy(handle.reserved, raw->directory->arena[arena].handle, sizeof handle.reserved);
	(void)fake_gpu.cuInit(0);
	if (fake_gpu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || fake_gpu.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return -ENODEV;
	cnre_vram_mark_open(raw->ledger, arena);
	if (fake_gpu.cuIpcOpenMemHandle_v2(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS) {
		r = fake_gpu.cuMemcpyDtoH_v2(to, base + cnre_place_offset(place) + objects[object].part_off[role], bytes) == CUDA_SUCCESS ? 0 : -EIO;
		if (fake_gpu.cuIpcCloseMemHandle(base) != CUDA_SUCCESS)
			r = -EIO;
	}
	cnre_vram_unmark_open(raw->ledger, arena);
	(void)fake_gpu.cuCtxPopCurrent_v2(&popped);
	(void)fake_gpu.cuDevicePrimaryCtxRelease_v2(0);
	return r;
}

uint32_t vram_raw_arenas(const struct vram_raw *raw, enum cnre_arena_state state)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CNRE_VRAM_ARENAS_MAX; i++)
		/* [TV2] relaxed: a test's look. */
		count += atomic_load_explicit(&raw->directory->arena[i].state, memory_order_relaxed) == (uint32_t)state;
	return count;
}
