"""Search terms of a text, and an inverted index over weighted terms.

The index is immutable and shared: a changed index copies only the changed parts. Scores are whole
numbers, so that they do not depend on the order of updates.
"""

from __future__ import annotations

import re
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import repeat
from math import log
from operator import mul
from sys import byteorder
from typing import Any

UNIT = 256
"""Weights of query terms are stored in steps of 1/256."""

_ENOUGH = 800
"""Most entries that one query reads in full. The terms after that are the most common ones: they are looked
up only for the documents that the rarer ones found."""
_KEPT = 250
"""Number of best documents that are looked up then, if there are more than twice as many: rare terms decide
most of the score."""
_TOO_COMMON = 0.35
"""A term in a larger share of the documents is ignored beside rarer ones."""
_RARITY = 1.3
"""How steeply rare terms outweigh common ones; 1 is plain BM25."""

Postings = tuple["array[int]", bytearray]


class InvertedIndex:
    """An index of documents, numbered in the order of addition. A removed one keeps its number and is never
    found."""

    __slots__ = ("_gone", "_postings", "_removed", "_tables", "_terms", "count")

    def __init__(self, documents: Iterable[Mapping[str, int]] = ()) -> None:
        self.count = 0
        """Number of documents, with the removed ones: the number of the next one."""
        self._postings: dict[str, Postings] = {}
        self._terms: list[tuple[str, ...]] | None = []
        """Terms of each document; None until they are needed, which is when a document is removed."""
        self._removed: frozenset[int] = frozenset()
        self._gone: dict[str, int] = {}
        """Number of removed documents by term."""
        self._tables: dict[str, bytearray] = {}
        for document in documents:
            self._append(document, self._postings)

    @classmethod
    def from_rows(cls, rows: Any) -> InvertedIndex:
        """Return the index from the values of `rows`.

        Raises:
            ValueError, TypeError: they are not values of `rows`.
        """
        order, count, postings = rows
        if order != byteorder:
            raise ValueError("of another machine")
        new = cls()
        for term, packed, weights in postings:
            numbers = array("I")
            numbers.frombytes(a2b_base64(packed))
            new._postings[term] = numbers, bytearray(a2b_base64(weights))
            if len(numbers) != len(new._postings[term][1]) or max(numbers) >= count:
                raise ValueError("no such documents")
        new.count, new._terms = count, None
        return new

    def rows(self) -> list[Any]:
        """Return the index as JSON values that `from_rows` reads. Removed documents are included."""
        postings = [
            (term, _packed(numbers), _packed(weights)) for term, (numbers, weights) in self._postings.items()
        ]
        return [byteorder, self.count, postings]

    @property
    def size(self) -> int:
        """Number of documents, without the removed ones."""
        return self.count - len(self._removed)

    @property
    def removed(self) -> int:
        """Number of documents that are removed but still take room."""
        return len(self._removed)

    def changed(self, removed: Iterable[int], added: Iterable[Mapping[str, int]]) -> InvertedIndex:
        """Return another index without some documents and with new ones at the end."""
        new = InvertedIndex()
        new.count, new._terms = self.count, None if self._terms is None else self._terms.copy()
        new._removed = self._removed | frozenset(removed)
        new._gone = self._gone.copy()
        for number in new._removed - self._removed:
            for term in self._terms_of(number):
                new._gone[term] = new._gone.get(term, 0) + 1
        new._postings = self._postings.copy()
        fresh: dict[str, Postings] = {}
        for document in added:
            for term in document:
                if term not in fresh and (known := self._postings.get(term)) is not None:
                    fresh[term] = (known[0][:], known[1][:])
            new._append(document, fresh)
        new._postings |= fresh
        return new

    def scores(self, query: Mapping[str, float]) -> dict[int, int]:
        """Return the documents found, by number, and their scores."""
        total = self.size
        spreads = sorted((self._spread(term), term) for term in query if term in self._postings)
        scores: dict[int, int] = {}
        walked = 0
        for spread, term in spreads:
            if walked and spread > total * _TOO_COMMON:
                break
            factor = round(UNIT * query[term] * log(1 + (total - spread + 0.5) / (spread + 0.5)) ** _RARITY)
            if walked + spread <= _ENOUGH or not walked:
                numbers, weights = self._postings[term]
                gains = zip(numbers, map(mul, repeat(factor), weights), strict=False)
                if scores:
                    for number, gain in gains:
                        scores[number] = scores.get(number, 0) + gain
                else:
                    scores = dict(gains)
            else:
                table = self._table(term)
                scores = {number: score + factor * table[number] for number, score in _top(scores).items()}
            walked += spread
        for number in self._removed & scores.keys():
            del scores[number]
        return scores

    def _append(self, document: Mapping[str, int], postings: dict[str, Postings]) -> None:
        for term, weight in document.items():
            if term in postings:
                numbers, weights = postings[term]
            else:
                numbers, weights = postings[term] = (array("I"), bytearray())
            numbers.append(self.count)
            weights.append(weight)
        self.count += 1
        if self._terms is not None:
            self._terms.append(tuple(document))

    def _terms_of(self, number: int) -> tuple[str, ...]:
        if self._terms is None:
            found: list[list[str]] = [[] for _ in range(self.count)]
            for term, (numbers, _) in self._postings.items():
                for one in numbers:
                    found[one].append(term)
            self._terms = list(map(tuple, found))
        return self._terms[number]

    def _spread(self, term: str) -> int:
        """Return the number of documents that contain a term."""
        return len(self._postings[term][0]) - self._gone.get(term, 0)

    def _table(self, term: str) -> bytearray:
        """Return the weights of a common term by document number. The result is cached."""
        table = self._tables.get(term)
        if table is None:
            table = self._tables[term] = bytearray(self.count)
            for number, weight in zip(*self._postings[term], strict=True):
                table[number] = weight
        return table


def _packed(numbers: array[int] | bytearray) -> str:
    return b2a_base64(numbers, newline=False).decode()


def _top(scores: dict[int, int]) -> dict[int, int]:
    """Return the best documents if there are too many to look up all of them."""
    if len(scores) <= 2 * _KEPT:
        return scores
    least = sorted(scores.values())[-_KEPT]
    return {number: score for number, score in scores.items() if score >= least}


STOP = """
a able about actually after again all also am an and any anyone anything are aren as assist
assistance at based be because been before being best better bit both but by can cannot could couldn
currently d did didn do does doesn doing don done each eg either else etc everything first following
for from further give given gives giving good great had has have having he hello help helping helps
her here hers hey hi him his how i ie if in interested into is isn it its itself just know let lets
like ll looking lot lots m many may me might more most much must my need needs no nor not now of off
on once one ones only onto or other our ours out over own please provide provided provides re really
s same second seem seems shall she should shouldn so some someone something specific specified such
t tell tells than thank thanks that the their theirs them then there these they thing things this
those through thus to too tried try trying two under until up upon us use used uses using ve very
via want wants was wasn way ways we well were weren what when where whether which while who whom
whose why will with within without won wonder wondering would wouldn you your yours
"""
"""Words that are removed from queries and documents."""

VERBS = """
get fetch retrieve read obtain load pull download access view open grab receive 获取 读取 下载 查看 打开
list show enumerate display browse view 列表 列出 显示 浏览
search find lookup query seek locate discover explore look browse retrieve 搜索 查询 查找 检索
create add make generate build insert compose produce draw design new 创建 生成 新建 添加 制作
write add save store put record append insert fill 写入 保存 存储 记录
upload import attach 上传 导入
delete remove erase drop clear destroy discard uninstall 删除 移除 清除
update edit modify change set alter patch adjust replace revise rename 更新 修改 编辑 设置 替换
send post publish submit share deliver forward reply notify 发送 发布 提交 分享 通知
run execute invoke start launch perform 运行 执行 启动 调用
stop cancel kill terminate abort pause 停止 取消 终止
convert transform export transcode turn change format 转换 导出
translate translation translator 翻译
calculate compute calculator calculation math mathematics arithmetic evaluate solve 计算
analyze analyse analysis analytics inspect examine assess evaluate 分析
check verify validate validation test confirm ensure 检查 验证 测试
compare comparison diff difference versus 比较 对比
summarize summarise summary digest overview abstract brief 摘要 总结
install setup configure deploy 安装 配置 部署
copy duplicate clone replicate 复制
move transfer relocate 移动
merge combine join concatenate unify 合并
split divide separate segment 拆分
count number total quantity amount statistics 数量 统计
buy purchase order shop shopping checkout 购买 购物
book reserve booking reservation 预订 预约
recommend suggest recommendation suggestion advice advise tip 推荐 建议
estimate predict prediction forecast project 预测
extract parse scrape crawl 提取 解析 抓取
navigate visit goto browse browser 导航 访问
learn study teach course education lesson tutorial train 学习 课程
monitor watch track trace observe 监控 跟踪
schedule plan arrange organize planner itinerary 计划 安排
describe explain define definition meaning
draw paint sketch drawing painting canvas 绘制 绘图
"""

NOUNS = """
image picture photo photograph drawing illustration artwork jpg jpeg png gif svg screenshot 图片 图像 照片
audio sound music song track mp3 wav flac melody playlist 音频 音乐 歌曲
video movie film clip mp4 youtube 视频 电影
file document json xml yaml 文件 文档
folder directory path 目录
webpage website site url link page web http https html internet online 网页 网站 网址 链接
email mail inbox gmail outlook 邮件 邮箱
repository repo github git gitlab commit branch 仓库
spreadsheet excel xlsx xls csv sheet workbook worksheet 表格
slide powerpoint ppt pptx presentation deck 幻灯 演示
document doc docx word 文档
text txt plaintext content paragraph sentence passage 文本 内容 段落
price cost quote fee value pricing 价格 费用
cheap discount deal coupon sale bargain 优惠 折扣
stock share equity ticker invest investor investment portfolio finance financial market 股票 金融 投资
crypto cryptocurrency bitcoin ethereum blockchain token nft wallet defi 加密
currency money exchange dollar euro rate 货币 汇率
news headline article press story 新闻 资讯
paper article publication journal literature arxiv academic scholar scientific research 论文 文献 学术
weather temperature climate forecast rain snow wind humidity sunny storm 天气 气温 预报
map location place address geographic coordinate gps latitude longitude nearby city 地图 位置 地址 附近 城市
route direction navigation distance road drive driving 路线 距离
travel trip tour tourism vacation holiday tourist visit sightseeing attraction 旅游 旅行 景点
hotel accommodation lodging hostel motel stay 酒店 住宿
flight airline plane airport airfare 航班 机票
train railway rail subway station 火车 列车 车站 车票
restaurant dining eat dinner lunch food meal cuisine 餐厅 美食 餐馆
recipe cook cooking dish ingredient kitchen meal 菜谱 食谱 烹饪
time date clock datetime timestamp timezone day today hour 时间 日期 时区
calendar event schedule meeting appointment agenda 日历 日程 会议
task todo reminder checklist project 任务 待办
note memo notebook journal diary 笔记
memory remember recall knowledge 记忆 知识
message chat conversation sms slack discord dm 消息 聊天
user person people member account profile contact customer 用户 账户 联系
company business firm organization corporation enterprise 公司 企业
chart plot graph diagram visualization visualize visual figure infographic 图表 可视
table database sql query postgres sqlite mysql 据库
code program script programming developer software source 代码 程序
bug issue ticket error defect problem fault exception 错误 问题
command shell terminal bash cmd cli console ssh 命令 终端
container docker kubernetes pod cluster
medicine drug medication medical pharmaceutical pill 药物 医学 医疗
health disease clinical patient doctor symptom hospital illness 健康 疾病 患者
gene genetic genomic variant dna protein 基因
game play player gaming 游戏 玩家
language english chinese spanish french japanese 语言
password secret credential auth authentication login 密码 登录
phone mobile smartphone telephone 手机 电话
job career employment hire hiring vacancy recruit recruiter resume talent 工作 招聘 职位
book novel author library reading 图书 书籍
sport match team league football soccer basketball 体育 比赛
product item goods merchandise 商品 产品
law legal lawyer attorney court legislation regulation statute 法律
house home property estate apartment rent mortgage 房产 房屋
car vehicle auto automobile 汽车
random dice shuffle lottery sample pick 随机
tag label category topic keyword 标签 分类
recent latest newest current now today live realtime 最新 当前 实时
trend trending popular hot top ranking hottest 热门 热榜 排行
history historical past previous 历史
domain dns whois hostname 域名
metadata exif property attribute 元数
form survey questionnaire quiz
color colour palette
science physics chemistry biology astronomy space nasa 科学
log logs logging trace 日志
social twitter tweet reddit facebook instagram weibo feed follower 社交 微博
browser click scroll tab button screenshot
graph node relation entity edge 关系 实体
statistics mean average median variance distribution 平均
math algebra equation formula number arithmetic 数学 方程
vulnerability security exploit threat malware 漏洞 安全
sentiment emotion mood feeling 情感
school university college student teacher class 学校 大学
tax salary income budget expense payment pay 税务 工资 预算
bank loan interest credit debt 银行 贷款
fitness exercise workout gym 健身
recommendation review rating opinion 评价 评论
speech voice speak tts talk pronounce 语音
sun moon planet star astronomy 天文
animal pet dog cat 动物 宠物
party gift present birthday wedding 礼物
"""


# Scripts written without spaces (Thai to Khmer, Japanese, Chinese, Korean) are cut into pairs of characters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
_BLANKED = bytes(code if chr(code).isalnum() else ord(" ") for code in range(128)) + bytes(128)
"""Translation table for ASCII: characters of words stay, all others become blanks."""
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_LONGEST_RUN = 60
_CACHED = 16_384

# Weights of the words of a query; a word without a class has 1. A rare synonym is not more significant than a
# common one, so words with a class share their weight with the class.
_VERB = 0.9
_VERB_CLASS = 0.5
_NOUN = 0.8
_NOUN_CLASS = 0.9

# Suffix: the least number of letters before it, and its replacement. The longest match is used.
_SUFFIXES: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("ations", "ation", "ators", "ator", "ating", "ated", "ates", "ate"), (3, "")),
    **dict.fromkeys(("itions", "ition", "ions", "ion"), (3, "")),
    **dict.fromkeys(("sions", "sion"), (3, "s")),
    **dict.fromkeys(("ments", "ment"), (4, "")),
    **dict.fromkeys(("ingly", "ings", "ing", "edly", "ed", "es", "s", "e"), (3, "")),
    **dict.fromkeys(("ies", "ied"), (2, "i")),
    **{ending: (2, ending[:-2]) for ending in ("sses", "xes", "ches", "shes")},
}
_LONGEST_FIRST = range(-max(map(len, _SUFFIXES)), 0)
_LAST = frozenset(ending[-1] for ending in _SUFFIXES)


@cache
def _run() -> re.Pattern[str]:
    """Compiled on first use: such large classes take milliseconds, and many hosts never need them."""
    return re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")


@cache
def _unspaced_start() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")


def runs(text: str) -> list[str]:
    """Return the words of a text as written; a change of script separates words."""
    # Most texts are ASCII, and a regular expression takes three times as long.
    if text.isascii():
        return text.encode().translate(_BLANKED).decode().split()
    return _run().findall(text)


class _Terms(dict[str, tuple[str, ...]]):
    """Cache of written words and their terms. `lru_cache` would take twice as long."""

    def __missing__(self, run: str) -> tuple[str, ...]:
        if len(self) >= _CACHED:
            self.clear()
        found: list[str] = []
        for word in _words(run):
            if word not in _SILENT:
                base = stem(word)
                found.append(base)
                found += _CLASSES[base]
        self[run] = terms = tuple(found)
        return terms


terms_of = _Terms().__getitem__
"""Return the search terms of one written word: its stems, each followed by its classes."""


def stem(word: str) -> str:
    """Return a lower-case English word without its inflection, as exactly as matching needs."""
    if len(word) < 4 or not word.isascii() or word.endswith(("ss", "us", "is")) or word == "news":
        return word
    if word[-1] in _LAST:
        for start in _LONGEST_FIRST:
            rule = _SUFFIXES.get(word[start:])
            if rule is not None and len(word) + start >= rule[0]:
                word = word[:start] + rule[1]
                break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        return word[:-1]  # stopped, stopp, stop
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "i"  # query, as queries
    return word


def query_weights(text: str) -> dict[str, float]:
    """Return the search terms of a query with their weights."""
    weights: dict[str, float] = {}
    for word in (word for run in runs(text) for word in _words(run)):
        if word in _SILENT:
            continue
        base = stem(word)
        classes = _CLASSES[base]
        own = 1.0 if not classes else _VERB if classes[0].startswith("=v") else _NOUN
        weights[base] = max(weights.get(base, 0.0), own)
        for name in classes:
            share = _VERB_CLASS if name.startswith("=v") else _NOUN_CLASS
            weights[name] = max(weights.get(name, 0.0), share)
    return weights


def _words(run: str) -> list[str]:
    """Return the lower-case words in one written word: parts of camelCase, pairs of unspaced characters."""
    run = run[:_LONGEST_RUN]
    if not run.isascii():
        if _unspaced_start().match(run):
            return [run[i : i + 2] for i in range(len(run) - 1)] or [run]
        from unicodedata import combining, normalize  # lazy: only for text that is not ASCII

        folded = normalize("NFKD", run.casefold())
        return ["".join(letter for letter in folded if not combining(letter)) or run]
    if run.isdigit():
        return []  # a number in a query is an argument, not a purpose
    whole = run.lower()
    if run == whole and run.isalpha():
        return [whole]
    parts = [part.lower() for part in _PART.findall(run)]
    if len(parts) < 2:
        return [whole]
    return [*(part for part in parts if len(part) > 1 and part.isalpha()), whole]


class _Classes(dict[str, tuple[str, ...]]):
    """Stems and their classes. Words are stemmed on the first lookup of one with the same two letters: for a
    small catalog, a few of a thousand words."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[str, str]]] = {}
        """Words and classes by their first two letters, which stemming keeps."""
        for kind, text in (("v", VERBS), ("n", NOUNS)):
            for number, line in enumerate(text.strip().splitlines()):
                name = f"={kind}{number}"
                for word in line.split():
                    self._waiting.setdefault(word[:2], []).append((word, name))

    def __missing__(self, base: str) -> tuple[str, ...]:
        found: dict[str, tuple[str, ...]] = {}
        for word, name in self._waiting.get(base[:2], ()):
            known = found.get(stem(word), ())
            found[stem(word)] = known if name in known else (*known, name)
        # In this order, so that another thread finds the words in one of the two at any time.
        self.update(found)
        self._waiting.pop(base[:2], None)
        return self.get(base, ())


_CLASSES = _Classes()
_SILENT = frozenset(STOP.split())
