/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gpu_exporter.h"

#include "tests/support/gpu_jobs.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum order_kind { ORDER_FREE, ORDER_UPLOAD, ORDER_STOP };

struct order {
	enum order_kind kind;
	uint32_t device, seed;
};

static int read_all(int fd, void *into, size_t bytes)
{
	return read(fd, into, bytes) == (ssize_t)bytes ? 0 : -EPIPE; /* less than PIPE_BUF: whole or not at all */
}

static int write_all(int fd, const void *from, size_t bytes)
{
	return write(fd, from, bytes) == (ssize_t)bytes ? 0 : -EPIPE;
}

static int fill_arena(struct gpu *gpu, struct gpu_exporter *self, uint32_t device, uint32_t seed)
{
	struct gpu_export *export = &self->device[device];
	unsigned char *content = malloc(export->bytes);
	int r;

	if (content == NULL)
		return -ENOMEM;
	self->fill(content, export->bytes, seed);
	r = gpu_try_upload(gpu, device, export->address, content, export->bytes, 0);
	export->seed = seed;
	free(content);
	return r;
}

static int make_arena(struct gpu *gpu, struct gpu_exporter *self, uint32_t device, uint64_t bytes)
{
	struct gpu_export *export = &self->device[device];
	struct gpu_device_status status;
	struct gpu_job job;
	int r = gpu_try_allocate(gpu, device, bytes, &job);

	if (r < 0)
		return r;
	gpu_get_status(gpu, device, &status);
	export->address = job.address;
	export->bytes = bytes;
	memcpy(export->handle, job.handle, sizeof export->handle);
	memcpy(export->token, gpu_token(), sizeof export->token);
	memcpy(export->uuid, status.uuid, sizeof export->uuid);
	return fill_arena(gpu, self, device, 100 + device);
}

static int follow(struct gpu *gpu, struct gpu_exporter *self, const struct order *order)
{
	return order->kind == ORDER_FREE ? gpu_try_free(gpu, order->device, self->device[order->device].address)
					 : fill_arena(gpu, self, order->device, order->seed);
}

static int serve(struct gpu_exporter *self, uint64_t bytes, int orders, int answers)
{
	struct gpu *gpu = NULL;
	struct order order;
	int r;

	self->error = gpu_open(&gpu, &(struct gpu_setup){.staging_bytes = 4u << 20}, self->message);
	if (self->error == 0)
		self->device_count = gpu_count(gpu) < GPU_EXPORTER_DEVICES ? gpu_count(gpu) : GPU_EXPORTER_DEVICES;
	for (uint32_t i = 0; i < self->device_count && self->error == 0; i++)
		self->error = make_arena(gpu, self, i, bytes);
	if (write_all(answers, self, sizeof *self) < 0 || self->error < 0)
		return 1;
	while (read_all(orders, &order, sizeof order) == 0 && order.kind != ORDER_STOP) {
		r = follow(gpu, self, &order);
		if (write_all(answers, &r, sizeof r) < 0)
			break;
	}
	(void)gpu_close(gpu);
	return 0;
}

int gpu_exporter_start(struct gpu_exporter *exporter, uint64_t bytes)
{
	return gpu_exporter_start_filled(exporter, bytes, gpu_fill);
}

int gpu_exporter_start_filled(struct gpu_exporter *exporter, uint64_t bytes, void (*fill)(void *, uint64_t, uint32_t))
{
	struct gpu_exporter said;
	int orders[2], answers[2], r;

	memset(exporter, 0, sizeof *exporter);
	exporter->fill = fill;
	if (pipe(orders) < 0 || pipe(answers) < 0)
		return -errno;
	exporter->pid = fork();
	if (exporter->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(orders[1]);
		(void)close(answers[0]);
		_exit(serve(exporter, bytes, orders[0], answers[1]));
	}
	(void)close(orders[0]);
	(void)close(answers[1]);
	r = exporter->pid < 0 ? -EAGAIN : read_all(answers[0], &said, sizeof said);
	if (r == 0) {
		said.pid = exporter->pid;
		*exporter = said;
		r = said.error;
	}
	exporter->to = orders[1];
	exporter->from = answers[0];
	return r;
}

static int ask(struct gpu_exporter *exporter, const struct order *order)
{
	int r, answer;

	r = write_all(exporter->to, order, sizeof *order);
	if (r == 0)
		r = read_all(exporter->from, &answer, sizeof answer);
	return r < 0 ? r : answer;
}

int gpu_exporter_free(struct gpu_exporter *exporter, uint32_t device)
{
	return ask(exporter, &(struct order){.kind = ORDER_FREE, .device = device});
}

int gpu_exporter_upload(struct gpu_exporter *exporter, uint32_t device, uint32_t seed)
{
	int r = ask(exporter, &(struct order){.kind = ORDER_UPLOAD, .device = device, .seed = seed});

	if (r == 0)
		exporter->device[device].seed = seed;
	return r;
}

static int reap(struct gpu_exporter *exporter)
{
	int status = -1;

	(void)close(exporter->to);
	(void)close(exporter->from);
	(void)waitpid(exporter->pid, &status, 0);
	exporter->pid = -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void gpu_exporter_kill(struct gpu_exporter *exporter)
{
	(void)kill(exporter->pid, SIGKILL);
	(void)reap(exporter);
}

int gpu_exporter_stop(struct gpu_exporter *exporter)
{
	(void)write_all(exporter->to, &(struct order){.kind = ORDER_STOP}, sizeof(struct order));
	return reap(exporter);
}
